"""The manifests of deploy/kubernetes: valid by Kubernetes' own schemas, and true of llamad, its image and each other.

The schemas are those of the package kubernetes-validate. No package has those of InferencePool, HTTPRoute and the
picker's configuration: of these only what they refer to is checked."""

import copy
import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from support.deploy.kustomize import identity, render
from support.fake_daemon import Faked

from llamad.engine.testing.fake import Fake
from llamad.flags.parse import parse
from llamad.flags.table import TABLE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
VARIANTS = ("cpu", "gpu", "inference-gateway")
VERSIONS = ("1.30", kubernetes_validate.latest_version())  # the first with preStop's sleep, the newest known
NO_SCHEMA = {"InferencePool", "HTTPRoute"}
VARIABLES = {name for flag in TABLE.flags for name in (*flag.env, *flag.env_off)}
DOCKERFILE = (ROOT / "deploy" / "docker" / "Dockerfile").read_text()


@pytest.fixture(params=VARIANTS)
def variant(request):
    return {identity(one): one for one in render(FOLDER / request.param)}


def pods_of(variant):
    return variant["StatefulSet", "llamad"]["spec"]["template"]


def container_of(variant):
    (container,) = pods_of(variant)["spec"]["containers"]
    return container


def settings_of(container):
    """What llamad would be started with in the image."""
    image = dict(re.findall(r"\b(LLAMA_\w+)=(\S+)", DOCKERFILE))
    given = {one["name"]: one["value"] for one in container["env"]}
    assert set(given) <= VARIABLES | {"LLAMA_CACHE"}
    assert all(isinstance(value, str) for value in given.values())
    parsed = parse(container["args"], image | given)
    assert parsed.warnings == []
    return parsed.settings


def selects(selector, pods):
    return bool(selector) and selector.items() <= pods["metadata"]["labels"].items()


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_are_valid(variant, version):
    checked = [one for one in variant.values() if one["kind"] not in NO_SCHEMA]
    assert len(checked) >= 6
    for one in checked:
        kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "template", "spec", "terminationGracePeriod"), 30),
        (("spec", "template", "spec", "containers", 0, "readinessProbe", "periodSeconds"), "2"),
        (("spec", "template", "spec", "containers", 0, "lifecycle", "preStop", "wait"), {"seconds": 5}),
        (("spec", "selector"), None),
    ],
)
def test_a_broken_manifest_is_not(path, value):
    (one,) = (one for one in render(FOLDER / "cpu") if one["kind"] == "StatefulSet")
    broken = copy.deepcopy(one)
    at = broken
    for step in path[:-1]:
        at = at[step]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


def test_flags_are_llamads_and_fit_the_pod(variant):
    container, pod = container_of(variant), pods_of(variant)["spec"]
    settings = settings_of(container)
    assert settings.model.hf_repo is not None
    assert settings.daemon.endpoint_metrics
    assert (settings.daemon.hosts, settings.daemon.port) == (
        ("0.0.0.0",),
        container["ports"][0]["containerPort"],
    )
    assert int(re.search(r"^EXPOSE (\d+)$", DOCKERFILE, re.MULTILINE)[1]) == settings.daemon.port
    waits = container["lifecycle"]["preStop"]["sleep"]["seconds"] + settings.daemon.drain_delay_seconds
    assert settings.daemon.drain_delay_seconds > 0
    assert waits + settings.daemon.drain_seconds < pod["terminationGracePeriodSeconds"]
    resources = container["resources"]
    assert resources["limits"]["memory"] == resources["requests"]["memory"]
    assert settings.model.cache_ram < int(resources["limits"]["memory"].removesuffix("Gi")) * 1024
    is_gpu = "nvidia.com/gpu" in resources["limits"]
    assert container["image"] == ("llamad:cuda" if is_gpu else "llamad:cpu")
    if not is_gpu:
        assert settings.model.n_threads < int(resources["requests"]["cpu"])


def test_what_is_written_and_read_is_mounted(variant):
    container, pod = container_of(variant), pods_of(variant)["spec"]
    settings = settings_of(container)
    mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
    claims = {
        one["metadata"]["name"] for one in variant["StatefulSet", "llamad"]["spec"]["volumeClaimTemplates"]
    }
    volumes = {one["name"]: one for one in pod["volumes"]}
    assert {one["name"] for one in mounts.values()} == claims | set(volumes)
    (cache,) = (one["value"] for one in container["env"] if one["name"] == "LLAMA_CACHE")
    assert mounts[cache]["name"] in claims
    keys = mounts[str(Path(settings.daemon.api_key_file).parent)]
    assert keys["readOnly"]
    secret = volumes[keys["name"]]["secret"]
    assert secret["defaultMode"] & 0o040  # by the group, which is fsGroup
    for one in ("cpu", "gpu"):
        made = re.search(r"create secret generic (\S+) --from-file=([\w-]+)=", read(one))
        assert made is not None
        assert made.groups() == (secret["secretName"], Path(settings.daemon.api_key_file).name)
    assert "emptyDir" in volumes[mounts["/tmp"]["name"]]


def read(folder):
    return (FOLDER / folder / "kustomization.yaml").read_text()


def test_pods_run_as_the_image_does_and_have_no_rights(variant):
    user, group = map(int, re.search(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE).groups())
    pod, container = pods_of(variant)["spec"], container_of(variant)
    security = pod["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"], security["fsGroup"]) == (user, group, group)
    assert pod["automountServiceAccountToken"] is False
    templates = [
        one["spec"]["template"]["spec"] for one in variant.values() if "template" in one.get("spec", {})
    ]
    assert pod in templates
    for one in templates:  # what the namespace's label enforces
        assert one["securityContext"]["runAsNonRoot"] is True
        assert one["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for inside in one["containers"]:
            assert inside["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_probes_tell_loading_from_dead(variant):
    container = container_of(variant)
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
    assert {one["port"] for one in probes.values()} == {container["ports"][0]["name"]}
    for load in (True, False):
        with Faked(Fake(), "--api-key", "k", load=load) as server:
            statuses = {name: server.client.get(one["path"]).status for name, one in probes.items()}
        ready = 200 if load else 503
        assert statuses == {"startup": ready, "readiness": ready, "liveness": 200}


def test_selectors_and_ports_meet(variant):
    pods, container = pods_of(variant), container_of(variant)
    (port,) = container["ports"]
    assert selects(variant["StatefulSet", "llamad"]["spec"]["selector"]["matchLabels"], pods)
    assert variant["StatefulSet", "llamad"]["spec"]["serviceName"] == "llamad-pods"
    for name in ("llamad", "llamad-pods"):
        service = variant["Service", name]["spec"]
        assert selects(service["selector"], pods)
        assert [one["targetPort"] for one in service["ports"]] == [port["name"]]
    headless = variant["Service", "llamad-pods"]["spec"]
    assert headless["clusterIP"] == "None"
    assert headless["ports"][0]["port"] == port["containerPort"]  # such a service translates no port
    assert selects(variant["PodDisruptionBudget", "llamad"]["spec"]["selector"]["matchLabels"], pods)
    policy = variant["NetworkPolicy", "llamad"]["spec"]
    assert selects(policy["podSelector"]["matchLabels"], pods)
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert [one["port"] for rule in policy["ingress"] for one in rule["ports"]] == [port["name"]]
    for one in variant.values():
        if one["kind"] != "Namespace":
            assert ("Namespace", one["metadata"]["namespace"]) in variant


def test_the_gateway_finds_pods_picker_and_metrics():
    variant = {identity(one): one for one in render(FOLDER / "inference-gateway")}
    pods, container = pods_of(variant), container_of(variant)
    pool, route = variant["InferencePool", "llamad"], variant["HTTPRoute", "llamad"]
    assert (pool["apiVersion"], route["apiVersion"]) == (
        "inference.networking.k8s.io/v1",
        "gateway.networking.k8s.io/v1",
    )
    assert selects(pool["spec"]["selector"]["matchLabels"], pods)
    assert [one["number"] for one in pool["spec"]["targetPorts"]] == [container["ports"][0]["containerPort"]]
    ((backend,),) = [rule["backendRefs"] for rule in route["spec"]["rules"]]
    assert (backend["kind"], backend["name"]) == identity(pool)
    assert pool["apiVersion"].startswith(backend["group"] + "/")

    picker = variant["Deployment", "llamad-picker"]["spec"]["template"]
    (inside,) = picker["spec"]["containers"]
    reference = pool["spec"]["endpointPickerRef"]
    service = variant["Service", reference["name"]]["spec"]
    assert selects(service["selector"], picker)
    assert not selects(pool["spec"]["selector"]["matchLabels"], picker)
    assert [one["port"] for one in service["ports"]] == [reference["port"]["number"]]
    assert service["ports"][0]["targetPort"] in {one["name"] for one in inside["ports"]}
    given = dict(one.removeprefix("--").split("=", 1) for one in inside["args"])
    assert (given["pool-name"], given["pool-namespace"]) == ("llamad", pool["metadata"]["namespace"])
    (mount,), (volume,) = inside["volumeMounts"], picker["spec"]["volumes"]
    config = variant["ConfigMap", volume["configMap"]["name"]]["data"]
    ((name, text),) = config.items()
    assert given["config-file"] == f"{mount['mountPath']}/{name}"

    picking = yaml.safe_load(text)
    plugins = {one["type"]: one.get("parameters", {}) for one in picking["plugins"]}
    used = [one["pluginRef"] for profile in picking["schedulingProfiles"] for one in profile["plugins"]]
    assert set(used) <= set(plugins)
    (engine,) = plugins["core-metrics-extractor"]["engineConfigs"]
    assert pods["metadata"]["labels"]["llm-d.ai/engine-type"] == engine.pop("name")
    documented = re.findall(r"^\| `([\w:]+)` \| gauge", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
    assert set(engine.values()) <= set(documented)
    assert len(engine) == 4
    capacity = plugins["approx-prefix-cache-producer"]
    settings = settings_of(container)
    n_host = settings.model.cache_ram * 1024 // 144  # 144 KiB a token, as gpu/pods.yaml says
    assert capacity["blockSizeTokens"] * capacity["lruCapacityPerServer"] == settings.model.n_ctx + n_host
    source = plugins["metrics-data-source"]
    with Faked(Fake(), "--api-key", "k", "--metrics", "--metrics-public") as server:
        answer = server.client.get(source["path"])  # the picker sends no key
        assert settings.daemon.metrics_public
        shown = set(re.findall(r"^([\w:]+) [\d.e+-]+$", answer.body.decode(), re.MULTILINE))
        assert set(engine.values()) - shown == {"llamad:lora_requests_info"}  # only with adapters
