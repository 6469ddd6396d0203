"""A process that answers whatever it is asked with the bytes that FRAME_ANSWER holds in hex, and
then says no more.

Started as each of the studio's processes is: by `-m` with a socket's number or with --lane, and by
path with pipes. FRAME_GREETING comes before any question.
"""

import os
import select
import sys

first = sys.argv[1]
if first.startswith("--lane="):
    source = sink = int(first.removeprefix("--lane=").split(",")[0])
else:
    source, sink = (int(first),) * 2 if first.isdigit() else (0, 1)
os.write(sink, bytes.fromhex(os.environ["FRAME_GREETING"]))
select.select([source], [], [])
os.write(sink, bytes.fromhex(os.environ["FRAME_ANSWER"]))
if not os.environ.get("FRAME_STAYS"):
    os._exit(0)
while os.read(source, 1 << 16):
    pass
