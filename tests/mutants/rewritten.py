# SPDX-License-Identifier: Apache-2.0
"""The sources of one library, built with all their mutants, and the test programs that run them."""
import glob
import os
import re
from concurrent.futures import ThreadPoolExecutor

import programs as building
import trials
from flips import Rewriter
from syntax import enumerators_of

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


# The value that a template or an array needs to be known when it is compiled.
NO_CONSTANT = re.compile(r"value of [‘'](?:[^’']*::)?(\w+)[’'] is not usable in a constant expression")


def say(text):
  print(text, flush=True)


def read(file):
  with open(os.path.join(ROOT, file), encoding='utf-8') as text:
    return text.read()


def enumerations():
  found = {}
  for folder in ('featuregates', 'netlink', 'agent'):
    for path in glob.glob(os.path.join(ROOT, folder, '**', '*.h'), recursive=True):
      found.update(enumerators_of(read(os.path.relpath(path, ROOT))))
  return found


class Rewritten:

  def __init__(self, folder, files, build, work, jobs, tests, test_filter):
    self.files = files
    self.build = building.Build(ROOT, build, os.path.join(work, folder), jobs)
    self.names = self.build.programs(folder, tests)
    self.test_filter = test_filter
    self.enumerators = enumerations()
    self.disabled = {}  # keys of mutants that do not compile
    self.constants_freed = set()  # files without mutants that need a constexpr to be none
    self.mutants = []

  def rewrite(self):
    """Makes the mutants; what it says is which files became others by that."""
    self.mutants = []
    changed = set()
    number = 0
    for file in self.files:
      rewriter = Rewriter(file, read(file), self.enumerators, number, self.disabled)
      # A little room: one more mutant here renumbers no other file's, which would compile them all.
      number = (rewriter.next_number // 100 + 1) * 100
      if rewriter.mutants and self.build.write(file, rewriter.text):
        changed.add(file)
      self.mutants += rewriter.mutants
    for file in self.constants_freed:
      text = Rewriter(file, read(file), self.enumerators, 0, mutate=False).text
      if self.build.write(file, text):
        changed.add(file)
    return changed

  def compile(self):
    """Until everything compiles, without the mutants that are in the way."""
    changed = self.rewrite()
    objects = set()
    failed = {}
    for _ in range(20):
      todo = [object_ for object_ in self.build.objects_that_need(changed, self.names)
              if object_ not in failed] + list(failed)
      objects.update(todo)
      say(f'  compiling {len(todo)} objects with {len(self.mutants)} mutants')
      failed = {object_: errors for object_, errors in self.build.compile_all(todo).items() if errors}
      if not failed:
        return sorted(objects)
      before = {m.key(): m for m in self.mutants}
      for object_, errors in failed.items():
        self.give_way(object_, errors)
      self.disabled_now(before)
      changed = self.rewrite()
    raise building.BuildFailed('the rewritten sources do not compile')

  def disabled_now(self, before):
    for key, mutant in before.items():
      if self.disabled.get(key, 0) is None:
        self.disabled[key] = mutant

  def give_way(self, object_, errors):
    """Takes out the mutants that the compiler complains about: those of each line that it names."""
    found = False
    # A constant that must stay one: what follows from that is no error of its own.
    constants = {name for _, _, text in errors for name in NO_CONSTANT.findall(text)}
    for mutant in self.mutants:
      # A member's mutants are those of its class; its line names it.
      if mutant.where in constants or any(f' {name} = ' in mutant.key()[2] for name in constants):
        found = True
        self.disabled[mutant.key()] = None
    if found:
      say(f'  needed as constants: {", ".join(sorted(constants))}')
      return
    for file, line, text in errors:
      own = [m for m in self.mutants if m.file == file]
      if text and not own and not file.startswith('..') and ('constant' in text or
                                                             'constexpr' in text):
        self.constants_freed.add(file)
        return
      hit = [m for m in own if m.line == line]
      if hit and (text or not found):
        found = True
        say(f'  in the way: {file}:{line}: {text or errors[0][2]}')
        for mutant in hit:
          self.disabled[mutant.key()] = None
    if not found:  # the size of an array: the compiler names the array, not the constant
      file, line, text = errors[0]
      own = [m for m in self.mutants if m.file == file and 'constant' in (text or '')]
      names = set(re.findall(r'\w+', read(file).split('\n')[line - 1])) if own else set()
      for mutant in own:
        if mutant.where in names:
          found = True
          say(f'  in the way: {file}:{mutant.line}: {text}')
          self.disabled[mutant.key()] = None
    if not found:
      raise building.BuildFailed(f'{object_} does not compile: {errors[0][0]}:{errors[0][1]}: '
                                 f'{errors[0][2]}')

  def prepare(self):
    self.build.bring_up_to_date(self.names)
    self.objects = self.compile()
    self.build.compile_told()

  def find_tests(self, with_kernel):
    """Finds out which test reaches which mutant: `programs` are the unit tests', then those of the kernel."""
    self.programs = [self.linked([name for name in self.names if not name.startswith('tests/kernel/')])]
    kernel = [name for name in self.names if name.startswith('tests/kernel/')]
    if kernel and with_kernel:
      self.programs.append(self.linked(kernel))

  def linked(self, names):
    say(f'  linking {len(names)} test programs')
    with ThreadPoolExecutor(self.build.jobs) as pool:
      paths = list(pool.map(lambda name: self.build.link(name, self.objects), names))
      found = list(pool.map(lambda path: trials.survey(path, self.test_filter), paths))
    for program, left_out in found:
      for name in left_out:
        say(f'  left out, because it fails without a mutant: {program.name}, {name}')
    programs = [program for program, _ in found if program.reach or program.always]
    return sorted(programs, key=lambda program: -len(program.reach))
