// SPDX-License-Identifier: Apache-2.0
//
// The objects of every overlay alone and with every choice of components, as kubectl renders them.
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse, parseAllDocuments, stringify } from "yaml";

export const overlays = ["observe", "coexist"];
export const components = ["attribution", "legacy", "podmonitor"];

const kubectl = (...words) =>
  execFileSync("kubectl", words, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });

// Components came with kubectl 1.21; Debian 12's is 1.20, whose kustomize is 2.0.3.
function knowsComponents() {
  const { clientVersion } = JSON.parse(kubectl("version", "--client", "--output=json"));
  return Number(clientVersion.major) > 1 || Number.parseInt(clientVersion.minor, 10) >= 21;
}

const edit = (file, change) => {
  const value = parse(readFileSync(file, "utf8"));
  change(value);
  writeFileSync(file, stringify(value));
};

// What a component means, in the words of kustomize 2.0.3: an overlay over whatever it is added to.
function makeOverlay(directory, base) {
  edit(join(directory, "kustomization.yaml"), (component) => {
    component.apiVersion = "kustomize.config.k8s.io/v1beta1";
    component.kind = "Kustomization";
    component.bases = [base];
    const patches = component.patches ?? [];
    delete component.patches;
    component.patchesStrategicMerge = patches.filter((patch) => !patch.target).map((patch) => patch.path);
    component.patchesJson6902 = patches.filter((patch) => patch.target);
  });
}

function makeChoice(tree, overlay, chosen) {
  const name = [overlay, ...chosen].join("-");
  if (knowsComponents()) {
    mkdirSync(join(tree, name));
    writeFileSync(
      join(tree, name, "kustomization.yaml"),
      stringify({
        apiVersion: "kustomize.config.k8s.io/v1beta1",
        kind: "Kustomization",
        resources: [`../overlays/${overlay}`],
        components: chosen.map((component) => `../components/${component}`),
      }),
    );
    return join(tree, name);
  }
  let below = `../overlays/${overlay}`;
  chosen.forEach((component, index) => {
    const step = `${name}-${index}`;
    cpSync(join(tree, "components", component), join(tree, step), { recursive: true });
    makeOverlay(join(tree, step), below);
    below = `../${step}`;
  });
  return join(tree, `${name}-${chosen.length - 1}`);
}

const choices = components.reduce(
  (known, component) => [...known, ...known.map((chosen) => [...chosen, component])],
  [[]],
);

export const read = (text) =>
  parseAllDocuments(text).map((document) => {
    if (document.errors.length > 0) throw document.errors[0];
    return document.toJS();
  });

// [{name, overlay, chosen, objects}]
export function renderAll(source, work) {
  const tree = join(work, "kubernetes");
  rmSync(tree, { recursive: true, force: true });
  cpSync(source, tree, { recursive: true });
  for (const [kind, named] of [["overlays", overlays], ["components", components]]) {
    const found = readdirSync(join(tree, kind)).sort().join();
    if (found !== [...named].sort().join()) throw new Error(`${kind}: ${found}, not ${named}`);
  }
  return overlays.flatMap((overlay) =>
    choices.map((chosen) => {
      const directory =
        chosen.length === 0 ? join(tree, "overlays", overlay) : makeChoice(tree, overlay, chosen);
      const text = kubectl("kustomize", directory);
      const name = [overlay, ...chosen].join("+");
      writeFileSync(join(work, `${name}.yaml`), text);
      return { name, overlay, chosen, objects: read(text) };
    }),
  );
}
