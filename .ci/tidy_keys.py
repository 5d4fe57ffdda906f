#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
#
# Usage: .ci/tidy_keys.py BUILD COMMANDS [CHANGED] <SOURCES
#
# Prints "KEY SOURCE" for each source of which a file that is named in CHANGED is part, or for all. As long
# as the key is the same, so is what clang-tidy says: it is made of clang-tidy's version and options, the
# command and the text of everything that the source includes, system headers too. BUILD has been built:
# the compiler noted there what includes what. COMMANDS is the folder of compile_commands.json.
import functools
import hashlib
import json
import os
import re
import subprocess
import sys

ROOT = os.path.realpath(os.getcwd())


@functools.cache
def digest(path):
  with open(path, 'rb') as file:
    return hashlib.sha256(file.read()).hexdigest()


def included(build, sources):
  files, block = {}, set()
  for line in subprocess.run(['ninja', '-C', build, '-t', 'deps'], capture_output=True, check=True,
                             text=True).stdout.splitlines():
    if not line.startswith(' '):
      block = set()
      continue
    path = os.path.realpath(os.path.join(build, line.strip()))
    block.add(path)
    if path in sources:
      files[path] = block
  return files


def main():
  build, commands, changed = sys.argv[1], sys.argv[2], None
  if len(sys.argv) > 3:
    with open(sys.argv[3], encoding='utf-8') as file:
      changed = {os.path.join(ROOT, line.strip()) for line in file}
  with open(os.path.join(commands, 'compile_commands.json'), encoding='utf-8') as file:
    command_of = {row['file']: row['command'] for row in json.load(file)}
  options = subprocess.run(['clang-tidy', '--version'], capture_output=True, check=True, text=True).stdout
  options += digest('.clang-tidy')
  sources = sys.stdin.read().split()
  files_of = included(build, {os.path.join(ROOT, source) for source in sources})
  for source in sources:
    path = os.path.join(ROOT, source)
    if path not in files_of:
      sys.exit(f'{source} is not built: build the preset dev first')
    if changed is not None and not files_of[path] & changed:
      continue
    text = '\n'.join([options, command_of[path]] + [f'{one} {digest(one)}' for one in sorted(files_of[path])])
    print(hashlib.sha256(re.sub(re.escape(ROOT), '.', text).encode()).hexdigest(), source)


main()
