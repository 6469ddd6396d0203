"""What scripts/check_deploy.py examines: manifests, images and rules against the program."""
