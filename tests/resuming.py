"""Results of an earlier run of the same code, for test commands that resume."""

import hashlib
import os
import subprocess

from examples.common import files, revision


def code(out, root=revision.ROOT):
    """Returns the revision and a digest of what differs from it; no digest outside of a clone.

    The digest is that of all changes and of the files that git neither tracks nor ignores.

    Args:
      out: File of results, which is not part of the code.
      root: Root of the clone.
    """
    found = {"revision": revision.revision(), "changes": None}
    if not (root / ".git").exists():
        return found
    try:
        changes = [_git(root, "diff", "--no-ext-diff", "--no-textconv", "--binary", "HEAD")]
        names = _git(root, "ls-files", "-z", "--others", "--exclude-standard").split(b"\0")
    except (OSError, subprocess.CalledProcessError):
        return found
    for path in sorted(root / os.fsdecode(name) for name in names if name):
        if path.is_file() and path.resolve() != out.resolve():
            changes += [os.fsencode(path.relative_to(root)), path.read_bytes()]
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in changes))
    return {**found, "changes": digest.hexdigest()}


def _git(root, *arguments):
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout


def earlier_results(path, identity, name):
    """Returns the entry `name` of a file of results; empty if its identity is another one.

    Also empty if it is unknown whether the code is the same.
    """
    if not path.exists() or identity["code"]["changes"] is None:
        return {}
    found = files.read_json(path)
    return found[name] if found.get("identity") == identity else {}
