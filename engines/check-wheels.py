"""Refuses wheels that are not those of wheels.sha256: check-wheels.py FOLDER"""
import hashlib, pathlib, sys

lines = pathlib.Path(__file__).with_name("wheels.sha256").read_text().splitlines()
known = {name: sha256 for sha256, name in (line.split() for line in lines if not line.startswith("#"))}
for wheel in pathlib.Path(sys.argv[1]).glob("*.whl"):
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if sha256 != known.get(wheel.name):
        sys.exit(f"{wheel.name}: SHA-256 {sha256} is not the one in engines/wheels.sha256")
