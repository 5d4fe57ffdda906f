// SPDX-License-Identifier: Apache-2.0
import { validate } from "dockerfile-utils";

// What is wrong with the text of the Dockerfile: by the linter, and by what we say of the image.
export function problemsOfDockerfile(text, version) {
  const problems = validate(text).map((found) => `line ${found.range.start.line + 1}: ${found.message}`);
  const last = text.slice(text.lastIndexOf("\nFROM ") + 1);
  const must = (pattern, message) => pattern.test(last) || problems.push(message);
  must(/^FROM scratch\n/, "the image is not made from scratch");
  must(/^ENTRYPOINT \["\/usr\/sbin\/kube-iptables-agent"\]$/m, "ENTRYPOINT is not the program itself");
  must(/^USER 0:0$/m, "USER is not root, or not said");
  must(new RegExp(`^ARG VERSION=${version.replaceAll(".", "\\.")}$`, "m"), `VERSION is not ${version}`);
  if (/^(RUN|ADD)\b/m.test(last)) problems.push("something but COPY fills the image");
  return problems;
}
