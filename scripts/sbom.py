#!/usr/bin/env python3
"""The parts of the program: an SBOM in CycloneDX 1.5, and the licences and notices of every crate in it, from `cargo metadata`.

    scripts/sbom.py --package warpline --target x86_64-unknown-linux-gnu --sbom sbom.cdx.json --licences THIRD-PARTY-LICENCES.txt

Only what is linked into the package for the target counts: no crates for tests, and none for builds alone. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import uuid

# Files of a crate that tell what may be done with it.
TEXTS = re.compile(r"^(licen[cs]e|copying|notice|copyright|unlicense)([-._].*)?$", re.IGNORECASE)


def metadata(target: str) -> dict:
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", target]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def linked(data: dict, root: str) -> list[dict]:
    """The packages that a package is linked of, itself first, then by name."""
    packages = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    begin = [package["id"] for package in packages.values() if package["name"] == root and package["source"] is None]
    if len(begin) != 1:
        sys.exit(f"sbom.py: there is no package {root} in this workspace")
    reached, todo = set(begin), list(begin)
    while todo:
        for dependency in nodes[todo.pop()]["deps"]:
            # Macros run in the compiler, but what they write is in the program.
            normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if normal and dependency["pkg"] not in reached:
                reached.add(dependency["pkg"])
                todo.append(dependency["pkg"])
    others = sorted((packages[i] for i in reached - set(begin)), key=lambda p: (p["name"], p["version"]))
    return [packages[begin[0]], *others]


def checksums() -> dict[tuple[str, str], str]:
    found, name, version = {}, "", ""
    for line in pathlib.Path("Cargo.lock").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(" = ")
        value = value.strip('"')
        if key == "name":
            name = value
        elif key == "version":
            version = value
        elif key == "checksum":
            found[name, version] = value
    return found


def component(package: dict, sums: dict[tuple[str, str], str], kind: str = "library") -> dict:
    name, version = package["name"], package["version"]
    purl = f"pkg:cargo/{name}@{version}"
    entry: dict = {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if package.get("description"):
        entry["description"] = " ".join(package["description"].split())
    if package.get("license"):
        # The old way to write a choice.
        expression = " ".join(package["license"].replace("/", " OR ").split())
        entry["licenses"] = [{"expression": expression}]
    elif package.get("license_file"):
        entry["licenses"] = [{"license": {"name": package["license_file"]}}]
    if (name, version) in sums:
        entry["hashes"] = [{"alg": "SHA-256", "content": sums[name, version]}]
    if package.get("repository"):
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return entry


def sbom(data: dict, packages: list[dict]) -> dict:
    sums = checksums()
    refs = {package["id"]: f"pkg:cargo/{package['name']}@{package['version']}" for package in packages}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    dependencies = [
        {"ref": ref, "dependsOn": sorted({refs[d["pkg"]] for d in nodes[i]["deps"] if d["pkg"] in refs} - {ref})}
        for i, ref in refs.items()
    ]
    # The same parts have the same number, so that a release can be made twice.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(sorted(refs.values())))
    bom: dict = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": component(packages[0], sums, "application")},
        "components": [component(package, sums) for package in packages[1:]],
        "dependencies": dependencies,
    }
    if "SOURCE_DATE_EPOCH" in os.environ:
        import datetime

        moment = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
        bom["metadata"]["timestamp"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return bom


def licences(packages: list[dict]) -> tuple[str, list[str]]:
    """The text of all licences and notices, each once, with the crates that have it; and crates that bring no text."""
    by_text: dict[str, list[str]] = {}
    silent = []
    for package in packages:
        if package["source"] is None:
            continue
        folder = pathlib.Path(package["manifest_path"]).parent
        files = [path for path in sorted(folder.iterdir()) if path.is_file() and TEXTS.match(path.name)]
        named = package.get("license_file")
        if named and (folder / named).is_file() and (folder / named) not in files:
            files.append(folder / named)
        label = f"{package['name']} {package['version']} ({package.get('license') or 'see its text'})"
        if not files:
            silent.append(label)
        for path in files:
            text = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").strip()
            by_text.setdefault(text, []).append(label)
    rule = "=" * 80
    parts = ["Warpline is linked with the crates below, under these licences.\n"]
    if silent:
        parts.append("These bring no text of their own; their licences are named in brackets:\n" + "\n".join(silent) + "\n")
    for text, labels in sorted(by_text.items(), key=lambda item: item[1][0]):
        parts.append(f"{rule}\n" + "\n".join(dict.fromkeys(labels)) + f"\n{rule}\n\n{text}\n")
    return "\n".join(parts), silent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", default="warpline")
    parser.add_argument("--target", required=True)
    parser.add_argument("--sbom", type=pathlib.Path, required=True)
    parser.add_argument("--licences", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    data = metadata(arguments.target)
    packages = linked(data, arguments.package)
    bom = sbom(data, packages)
    arguments.sbom.write_text(json.dumps(bom, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    text, silent = licences(packages)
    arguments.licences.write_text(text, encoding="utf-8")
    unknown = [p["name"] for p in packages if not p.get("license") and not p.get("license_file")]
    if unknown:
        sys.exit(f"sbom.py: no licence is known of {', '.join(unknown)}")
    print(f"{len(packages) - 1} crates, {len(silent)} of them without a text of their licence")


if __name__ == "__main__":
    main()
