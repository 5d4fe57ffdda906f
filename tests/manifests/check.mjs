// SPDX-License-Identifier: Apache-2.0
//
// Usage: node check.mjs SOURCE_DIR VERSION AGENT
//
// Judges deploy/kubernetes, deploy/helm and deploy/container/Dockerfile.
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  filesOfConfig, otherValues, problemsOfChart, problemsOfOthers, problemsOfUpgrade, problemsOfValues, renderChart, valuesOf,
} from "./chart.mjs";
import { problemsOfDockerfile } from "./dockerfile.mjs";
import { problemsOfPolicy } from "./policy.mjs";
import { renderAll } from "./render.mjs";
import { problemsOfTypes } from "./types.mjs";

const [source, version, agent] = process.argv.slice(2);
const work = process.cwd();
const failures = [];
const complain = (where, problems) => problems.forEach((problem) => failures.push(`${where}: ${problem}`));

// The program itself reads its configuration and its flags. (Of `run`; `gates` checks them the same.)
function problemsOfProgram({ objects }) {
  const folder = join(work, "etc");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  for (const [name, text] of Object.entries(filesOfConfig(objects))) {
    writeFileSync(join(folder, name), text.replace("/etc/kube-iptables-agent/", `${folder}/`));
  }
  const [, ...flags] = objects.find(({ kind }) => kind === "DaemonSet").spec.template.spec.containers[0].args;
  return ["192.0.2.1", "2001:db8::1"].flatMap((address) => {
    const words = flags.map((flag) => flag.replace("$(HOST_IP)", address).replace("/host", "/"));
    try {
      execFileSync(agent, ["gates", `--config=${join(folder, "config.yaml")}`, ...words], { stdio: "pipe" });
      return [];
    } catch (error) {
      return [`the program: ${error.stderr}`];
    }
  });
}

const renders = renderAll(join(source, "deploy/kubernetes"), work);
const types = await problemsOfTypes(renders.flatMap(({ objects }) => objects), work);
for (const render of renders) {
  const ofTypes = types.splice(0, render.objects.length).flat();
  complain(render.name, [...ofTypes, ...problemsOfPolicy(render, version), ...problemsOfProgram(render)]);
}

const chart = join(source, "deploy/helm");
complain("chart", [...problemsOfValues(chart), ...problemsOfUpgrade(chart, work)]);
for (const render of renders) {
  const objects = renderChart(chart, valuesOf(render), work);
  complain(`chart: ${render.name}`, [...problemsOfChart(render, objects), ...problemsOfProgram({ objects })]);
}
const noSettings = renderChart(chart, { config: { observe: null, emulatedVersion: null } }, work);
complain("chart: no settings", problemsOfProgram({ objects: noSettings }));
const prometheus = join(source, "deploy/prometheus");
const others = renderChart(chart, otherValues, work);
complain("chart: other values", [...problemsOfOthers(others, prometheus),
  ...(await problemsOfTypes(others, work)).flat(), ...problemsOfProgram({ objects: others })]);

const dockerfile = readFileSync(join(source, "deploy/container/Dockerfile"), "utf8");
complain("Dockerfile", problemsOfDockerfile(dockerfile, version));

failures.forEach((failure) => console.error(failure));
console.log(`${renders.length} renders, ${renders.flatMap(({ objects }) => objects).length} objects, ` +
  `${renders.length} of the chart; ${failures.length} problems`);
process.exitCode = failures.length === 0 ? 0 : 1;
