"""The same engine behind an existing distributed engine: a studio whose voices are spoken by the
replicas of a fleet (Ray Serve), each with the scheduler of a studio.

`remote` and `stream` are the studio's side and need no Ray; `replica` is the fleet's and is run by
`serve`, the only module that imports Ray.
"""
