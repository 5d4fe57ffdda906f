// SPDX-License-Identifier: Apache-2.0
//
// Kubernetes' own OpenAPI types, by kubernetes-models: its validators tell what is missing or has a
// wrong type, range or form; its TypeScript types, which the compiler judges, tell a field that
// Kubernetes does not know.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";

function modelOf(object) {
  const { apiVersion, kind } = object;
  const root = apiVersion.startsWith("monitoring.coreos.com/")
    ? "@kubernetes-models/prometheus-operator"
    : "kubernetes-models";
  return { module: `${root}/${apiVersion}`, kind };
}

async function problemsOfValues(object) {
  const { module, kind } = modelOf(object);
  const Model = (await import(module).catch(() => ({})))[kind];
  if (Model === undefined) return [`${module} has no ${kind}`];
  try {
    new Model(object).validate();
    return [];
  } catch (error) {
    return [error.message];
  }
}

// One source with a constant for each object; the compiler says what is wrong with which line.
function problemsOfFields(objects, work) {
  const file = join(work, "objects.ts");
  const lines = objects.map((object, index) => {
    const { module, kind } = modelOf(object);
    return `export const o${index}: import("${module}").I${kind} = ${JSON.stringify(object)};`;
  });
  writeFileSync(file, lines.join("\n"));
  const program = ts.createProgram([file], {
    noEmit: true,
    strict: true,
    skipLibCheck: true,
    types: [],
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
  });
  const problems = objects.map(() => []);
  for (const diagnostic of ts.getPreEmitDiagnostics(program)) {
    const message = ts.flattenDiagnosticMessageText(diagnostic.messageText, " ");
    if (diagnostic.file?.fileName !== file) throw new Error(message);
    problems[diagnostic.file.getLineAndCharacterOfPosition(diagnostic.start).line].push(message);
  }
  return problems;
}

// For each object what is wrong with it.
export async function problemsOfTypes(objects, work) {
  const fields = problemsOfFields(objects, work);
  const values = await Promise.all(objects.map(problemsOfValues));
  return objects.map((_, index) => [...values[index], ...fields[index]]);
}
