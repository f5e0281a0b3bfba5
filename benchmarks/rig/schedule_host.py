"""A host of fault schedules: imports torch once, then forks a rank for each schedule it is told through a socket.

schedule_host.py SOCKET
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import socket
import sys

import torch

from rig import schedule_rank

LATE_S = 60.0
"""A rank that is still there says where it is: most schedules are over in half of that."""


def main() -> None:
    """Fork a rank for each line, and answer how it ended; a line "kill" ends the one that runs."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen(1)
    wire, _ = listener.accept()
    lines = wire.makefile("rw")
    for line in lines:
        pid = os.fork()
        if pid == 0:
            listener.close()
            _be_rank(json.loads(line))
        lines.write(json.dumps({"pid": pid}) + "\n")
        lines.flush()
        _, status = os.waitpid(pid, 0)
        lines.write(json.dumps({"code": os.waitstatus_to_exitcode(status)}) + "\n")
        lines.flush()


def _be_rank(told: dict[str, object]) -> None:
    code = 70
    try:
        errors = os.open(str(told["stderr"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(errors, 2)
        faulthandler.dump_traceback_later(LATE_S)
        code = schedule_rank.main(told)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
