"""Programs shown in docs/ are those that are built: a block after `<!-- from PATH -->` is that file, word for word."""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
BLOCK = re.compile(r"^<!-- from (\S+) -->\n+```\w*\n(.*?)^```$", re.M | re.S)

faults, blocks = [], 0
for page in sorted((ROOT / "docs").rglob("*.md")):
    for name, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        blocks += 1
        source = ROOT / name
        if not source.exists():
            faults.append(f"{page.relative_to(ROOT)}: {name} is not there")
        elif source.read_text(encoding="utf-8") != text:
            faults.append(f"{page.relative_to(ROOT)}: its copy of {name} differs; copy the file again")
print("\n".join(faults) or f"{blocks} programs in docs/ are as built")
sys.exit(1 if faults else 0)
