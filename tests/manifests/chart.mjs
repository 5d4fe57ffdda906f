// SPDX-License-Identifier: Apache-2.0
//
// The chart of deploy/helm, rendered with the values that mean an overlay and its components. It must
// make the same objects as kustomize does, and the same configuration: kustomize's is a ConfigMap.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import Ajv from "ajv";
import { parse, stringify } from "yaml";
import { read } from "./render.mjs";

export const valuesOf = ({ overlay, chosen }) => ({
  config: overlay === "observe" ? {} : { observe: false, staleChains: "keep" },
  attribution: chosen.includes("attribution"),
  iptablesLegacy: chosen.includes("legacy"),
  podMonitor: chosen.includes("podmonitor"),
});

export function renderChart(chart, values, work) {
  const file = join(work, "values.yaml");
  writeFileSync(file, stringify(values));
  return read(execFileSync(join(work, "render"), [chart, "kube-system", file], { encoding: "utf8" }));
}

// The files of the volume `config`, as kubelet makes them: of a ConfigMap, or of annotations of the pod.
export function filesOfConfig(objects) {
  const { metadata, spec } = objects.find(({ kind }) => kind === "DaemonSet").spec.template;
  const { configMap, downwardAPI } = spec.volumes.find(({ name }) => name === "config");
  if (configMap) {
    return objects.find((object) => object.kind === "ConfigMap" && object.metadata.name === configMap.name).data;
  }
  const annotation = ({ fieldPath }) => metadata.annotations?.[/^metadata\.annotations\['(.*)'\]$/.exec(fieldPath)?.[1]];
  return Object.fromEntries(downwardAPI.items.map(({ path, fieldRef }) => [path, annotation(fieldRef) ?? ""]));
}

// What is the tool's, and not the object's.
function bare(object) {
  const { metadata, spec } = object;
  for (const key of ["helm.sh/chart", "app.kubernetes.io/managed-by"]) delete metadata.labels?.[key];
  if (Object.keys(metadata.labels ?? {}).length === 0) delete metadata.labels;
  if (object.kind === "DaemonSet") {
    delete spec.template.metadata.annotations;
    const volume = spec.template.spec.volumes.find(({ name }) => name === "config");
    for (const from of ["configMap", "downwardAPI"]) delete volume[from];
  }
  // kustomize puts what a component adds first.
  const byName = (_, value) => Array.isArray(value) && value.every((one) => one?.name)
    ? value.sort((a, b) => (a.name < b.name ? -1 : 1)) : value;
  return JSON.parse(JSON.stringify(object), byName);
}

const sorted = (objects) => structuredClone(objects).map(bare).sort((a, b) => (a.kind < b.kind ? -1 : 1));

const config = (objects) => {
  const { "config.yaml": text, ...others } = filesOfConfig(objects);
  return { ...others, "config.yaml": parse(text) };
};

const differences = (is, shall, path) => {
  if (isDeepStrictEqual(is, shall)) return [];
  const inner = (value) => typeof value === "object" && value !== null;
  if (!inner(is) || !inner(shall)) return [`${path} is ${JSON.stringify(is)}, not ${JSON.stringify(shall)}`];
  return [...new Set([...Object.keys(is), ...Object.keys(shall)])].flatMap((key) =>
    differences(is[key], shall[key], `${path}.${key}`));
};

// `render`: of kustomize; `objects`: of the chart.
export function problemsOfChart(render, objects) {
  const [is, shall] = [sorted(objects), sorted(render.objects.filter(({ kind }) => kind !== "ConfigMap"))];
  if (is.length !== shall.length) return [`${is.length} objects, not ${shall.length}`];
  return [...differences(config(objects), config(render.objects), "config"),
    ...is.flatMap((object, at) => differences(object, shall[at], shall[at].kind))];
}

// Values other than the default's. The Prometheus Operator selects its objects by labels.
export const otherValues = {
  cniConfDir: "/var/lib/rancher/k3s/agent/etc/cni/net.d",
  podMonitor: true,
  podMonitorLabels: { release: "prometheus" },
  expectedRules: " # Ours\nfilter/DOCKER-USER\n",
  image: { repository: "registry.example/agent", digest: `sha256:${"0".repeat(64)}` },
  imagePullSecrets: [{ name: "registry" }],
  prometheusRule: { enabled: true, labels: { release: "prometheus" }, runbooks: "https://docs.example/kipt/" },
};

export function problemsOfOthers(objects, prometheus) {
  const rules = objects.filter(({ kind }) => kind === "PrometheusRule");
  const problems = rules.length === 2 ? [] : [`${rules.length} PrometheusRule objects, not 2`];
  for (const { metadata, spec } of rules) {
    const file = join(prometheus, `${metadata.name.replace(/^kube-iptables-agent-/, "").replace("-", "_")}.yaml`);
    const text = readFileSync(file, "utf8");
    const installed = "file:///usr/share/doc/kube-iptables-agent/";
    problems.push(...differences(spec, parse(text.replaceAll(installed, "https://docs.example/kipt/")), metadata.name));
  }
  const unlabelled = objects.filter(({ kind, metadata }) =>
    ["PodMonitor", "PrometheusRule"].includes(kind) && metadata.labels.release !== "prometheus");
  const { containers, volumes, imagePullSecrets } = objects.find(({ kind }) => kind === "DaemonSet").spec.template.spec;
  const { cniConfDir: folder, image, expectedRules } = otherValues;
  const files = filesOfConfig(objects);
  problems.push(...differences(containers[0].image, `${image.repository}@${image.digest}`, "image"),
    ...differences(imagePullSecrets, otherValues.imagePullSecrets, "imagePullSecrets"),
    ...differences(files["expected-rules"], expectedRules, "expected-rules"),
    ...differences(parse(files["config.yaml"])?.expectedRules, "/etc/kube-iptables-agent/expected-rules", "expectedRules"));
  if (!containers[0].volumeMounts.some(({ mountPath }) => mountPath === `/host${folder}`) ||
      !volumes.some(({ hostPath }) => hostPath?.path === folder)) problems.push(`${folder} is not mounted`);
  return [...problems, ...unlabelled.map(({ kind }) => `a ${kind} has no label to select it by`)];
}

// Helm cannot roll back to an object that no longer has its name, or that it keeps. An object that pods share reaches
// nodes before the rollout does. So a change of `config` or `expectedRules` must change the pods and nothing else.
export function problemsOfUpgrade(chart, work) {
  const changes = [{}, { config: { hintPolicy: "always" } }, { expectedRules: "nat/OTHER" }];
  const renders = changes.map((change) => renderChart(chart, { ...otherValues, ...change }, work));
  const unlike = (of) => new Set(renders.map((objects) => JSON.stringify(objects.map(of)))).size;
  const problems = unlike(({ kind, metadata }) => [kind, metadata.name]) === 1 ? [] : ["a change renames an object"];
  if (unlike(({ spec }) => spec?.template) !== changes.length) problems.push("a change does not roll the pods");
  if (unlike((object) => object.kind === "DaemonSet" || object) !== 1) problems.push("a change reaches pods that run");
  const kept = renders[0].filter(({ metadata }) => metadata.annotations?.["helm.sh/resource-policy"]);
  return [...problems, ...kept.map(({ kind }) => `a ${kind} has a resource-policy`)];
}

// Every value that the schema names is one of values.yaml, and the other way round.
export function problemsOfValues(chart) {
  const values = parse(readFileSync(join(chart, "values.yaml"), "utf8"));
  const schema = JSON.parse(readFileSync(join(chart, "values.schema.json"), "utf8"));
  const compare = (value, of, path) => {
    if (of.additionalProperties !== false) return [];
    const known = Object.keys(of.properties).filter((key) => path !== "values" || !["global", "enabled"].includes(key));
    const problems = isDeepStrictEqual(known.sort(), Object.keys(value).sort())
      ? [] : [`${path}: the schema has ${known}, values.yaml ${Object.keys(value)}`];
    return [...problems, ...known.flatMap((key) => compare(value[key], of.properties[key], `${path}.${key}`))];
  };
  const accepts = new Ajv({ strict: false }).compile(schema);
  const wrong = ["apiVersion", "kind", "healthzBindAddress", "metricsBindAddress", "expectedRules"].filter((key) =>
    accepts({ ...values, config: { [key]: "" } }));
  const others = { ...values, ...otherValues, image: { ...values.image, ...otherValues.image }, enabled: true };
  return [...compare(values, schema, "values"), ...(accepts(values) ? [] : ["values: the schema refuses values.yaml"]),
    ...(accepts(others) ? [] : [`values: the schema refuses others: ${JSON.stringify(accepts.errors)}`]),
    ...wrong.map((key) => `values: the schema accepts config.${key}`)];
}
