"""Renders the kustomizations of deploy/kubernetes as `kubectl kustomize` would, as far as they go: resources, the
namespace, images, and strategic merge patches. Anything else in them is an error here, not a difference."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]
KNOWN = {"apiVersion", "kind", "namespace", "resources", "images", "patches"}
NOT_NAMESPACED = {"Namespace"}
# Lists that patches merge, by what tells their items apart; others are replaced.
MERGE_KEYS = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath"}


def documents(path: Path) -> list[Manifest]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def merged(base: Any, patch: Any, field: str = "") -> Any:
    if isinstance(base, dict) and isinstance(patch, dict):
        assert "$patch" not in patch
        return {**base, **{key: merged(base.get(key), value, key) for key, value in patch.items()}}
    key = MERGE_KEYS.get(field)
    if isinstance(base, list) and key is not None:
        by_key = {one[key]: one for one in base}
        for one in patch:
            by_key[one[key]] = merged(by_key.get(one[key]), one)
        return list(by_key.values())
    return patch


def identity(one: Manifest) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


def set_image(one: Manifest, image: dict[str, str]) -> None:
    assert set(image) == {"name", "newName", "newTag"}
    pods = one.get("spec", {}).get("template", {}).get("spec", {})
    for container in pods.get("containers", ()):
        if container["image"] == image["name"]:
            container["image"] = f"{image['newName']}:{image['newTag']}"


def render(folder: Path) -> list[Manifest]:
    (top,) = documents(folder / "kustomization.yaml")
    assert top["kind"] == "Kustomization"
    assert set(top) <= KNOWN, set(top) - KNOWN
    manifests: list[Manifest] = []
    for name in top["resources"]:
        path = folder / name
        manifests += render(path) if path.is_dir() else documents(path)
    manifests = copy.deepcopy(manifests)
    for patch in top.get("patches", ()):
        assert set(patch) == {"path"}
        (changes,) = documents(folder / patch["path"])
        targets = [i for i, one in enumerate(manifests) if identity(one) == identity(changes)]
        assert len(targets) == 1, identity(changes)
        manifests[targets[0]] = merged(manifests[targets[0]], changes)
    for one in manifests:
        for image in top.get("images", ()):
            set_image(one, image)
        if "namespace" in top and one["kind"] not in NOT_NAMESPACED:
            one["metadata"]["namespace"] = top["namespace"]
    assert len({identity(one) for one in manifests}) == len(manifests)
    return manifests
