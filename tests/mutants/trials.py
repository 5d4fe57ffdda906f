# SPDX-License-Identifier: Apache-2.0
"""Runs test programs: first to see which test reaches which mutant, then each mutant until a test fails."""
import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field

# A mutant that never ends may also never stop taking memory.
MEMORY = 4 << 30
# Tests that take longer than this run only where no other one notices.
SLOW_MS = 500
# Tests that measure time or memory, and fail on a busy machine.
LEFT_OUT = '-*Scale*:*Abuse*:*InNoTime*:*UnderASecond*:*NoMemoryBehind*'


@dataclass
class Program:
  path: str
  name: str
  tests: dict = field(default_factory=dict)  # name: milliseconds
  reach: dict = field(default_factory=dict)  # mutant: names of tests
  always: set = field(default_factory=set)  # mutants that are reached before the first test

  @property
  def kernel(self):
    return self.name.startswith('kernel_')


@dataclass
class Outcome:
  caught_by: str = ''  # empty: nobody
  how: str = ''  # 'failed', 'crashed', 'time limit'
  tests: int = 0  # that ran, or would have
  program: str = ''


def read_lines(path):
  if not os.path.exists(path):
    return []
  with open(path, encoding='utf-8') as file:
    return file.read().split('\n')


def wait(child, program, told):
  """Its exit code; None where one test took five times as long as it should, and ten seconds more."""
  size = -1
  since = time.monotonic()
  pause = 0.005
  while True:
    try:
      return child.wait(timeout=pause)
    except subprocess.TimeoutExpired:
      pause = min(2 * pause, 0.2)
    now = os.path.getsize(told) if os.path.exists(told) else 0
    if now != size:
      size = now
      since = time.monotonic()
      continue
    if time.monotonic() - since < 10:
      continue
    running = next((line.split()[1] for line in reversed(read_lines(told))
                    if line.startswith('begin')), '')
    usual = program.tests.get(running, 0) / 1000 if program.tests else 600
    if time.monotonic() - since > 10 + 5 * usual:
      return None


def execute(program, mutant, tests, directory):
  """Lines that the program told, its exit code (None: it was ended), and what it printed."""
  told = os.path.join(directory, 'told')
  if os.path.exists(told):
    os.remove(told)
  environment = dict(os.environ, KIPT_MUTANT_TOLD=told)
  environment.pop('KIPT_MUTANT', None)
  if mutant is not None:
    environment['KIPT_MUTANT'] = str(mutant)
  if tests is not None:
    environment['GTEST_FILTER'] = ':'.join(tests)
  log = open(os.path.join(directory, 'log'), 'w+b')
  with log, subprocess.Popen(['setpriv', '--pdeathsig', 'KILL', 'prlimit', f'--as={MEMORY}', '--core=0', program.path,
                              '--gtest_brief=1', '--gtest_color=no'], stdout=log, stderr=log,
                             stdin=subprocess.DEVNULL, env=environment, cwd=directory,
                             start_new_session=True) as child:
    code = wait(child, program, told)
    try:  # its session, and whatever it started
      os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
      pass
    child.wait()
    log.seek(0)
    printed = log.read()[-4000:].decode(errors='replace')
  return read_lines(told), code, printed


def survey(path, test_filter='*'):
  """What of which mutants the tests of the program at `path` reach, none being active; and the tests that
  failed twice, which are left out."""
  program = Program(path, os.path.basename(path))
  failed = Counter()
  left_out = []
  for _ in range(8):  # on a busy machine one may be late
    with tempfile.TemporaryDirectory() as directory:
      lines, code, printed = execute(program, None, [test_filter, ':'.join([LEFT_OUT, *left_out])], directory)
    if code == 0:
      break
    name = next((line.split()[1] for line in reversed(lines) if line.startswith(('begin', 'failed'))), '')
    failed[name] += 1
    left_out = [name for name, times in failed.items() if times > 1]
  else:
    raise RuntimeError(f'{program.name} fails with no mutant at all:\n{printed}')
  for line in lines:
    words = line.split()
    if words[:1] == ['static']:
      program.always = {int(word) for word in words[1:]}
    elif words[:1] == ['end']:
      program.tests[words[1]] = int(words[2])
      for word in words[3:]:
        program.reach.setdefault(int(word), []).append(words[1])
  return program, left_out


def tests_for(program, mutant, near):
  """Those that may notice it. A table is filled before the first test; the tests of its own source use it."""
  if mutant in program.always:
    return near or ([] if program.kernel else list(program.tests))
  return program.reach.get(mutant, [])


def in_turn(order, mutant, only_quick, likely):
  """Pairs of a program and those of its tests that reach the mutant, in the order to run them."""
  first = []
  quick = []
  slow = []
  for program, near in order:
    tests = tests_for(program, mutant, near)
    if (program.name, likely[1]) == likely and likely[1] in tests:
      first = [(program, [likely[1]])]
      tests = [test for test in tests if test != likely[1]]
    quick.append((program, [test for test in tests if program.tests[test] <= SLOW_MS]))
    # Other sources' tests may be the ones that look into a table.
    if mutant in program.always and not program.kernel:
      slow.append((program, [test for test in program.tests if test not in tests]))
    slow.append((program, [test for test in tests if program.tests[test] > SLOW_MS]))
  return [(program, tests) for program, tests in first + quick + ([] if only_quick else slow) if tests]


def try_one(order, mutant, only_quick, likely=('', '')):
  """Runs what reaches the mutant until a test fails. `likely` is a program and its test that come first:
  it has caught a mutant next to this one."""
  total = 0
  with tempfile.TemporaryDirectory() as directory:
    for program, tests in in_turn(order, mutant, only_quick, likely):
      lines, code, _ = execute(program, mutant, tests, directory)
      total += len(tests)
      if code == 0:
        continue
      last = next((line.split() for line in reversed(lines)
                   if line.startswith(('begin', 'failed'))), None)
      name = last[1] if last else 'before the first test'
      how = 'time limit' if code is None else 'crashed' if code < 0 or not last or last[
          0] == 'begin' else 'failed'
      return Outcome(name, how, total, program.name)
  return Outcome(tests=total)


def confirmed(once, likely, is_listed):
  """The outcome of `once`, which is asked again where the first answer may come from a busy machine: a test that
  reached its time limit, or that failed for a mutant of which a list says that no test catches it."""
  outcome = once(likely)
  if outcome.how == 'time limit' or (outcome.caught_by and is_listed):
    outcome = once((outcome.program, outcome.caught_by))
  return outcome


def in_order(programs, numbers, neighbours, folder):
  """Pairs of a program and its tests that reach a mutant of the file: first those of its own folder, then those
  that reach the most. A file of tables alone has the tests of its neighbours, those tried in its folder."""
  reached = {id(program): len([n for n in numbers if n in program.reach]) for program in programs}
  most = [program for program in programs if reached[id(program)] > 0]
  if not most:  # a file of tables that are filled before the first test
    most = [program for program in programs if any(n in program.always for n in numbers)]
  own = folder.replace('/', '_') + '_'
  most.sort(key=lambda program: (not program.name.startswith(own), -reached[id(program)]))
  near = [(program, sorted({test for n in numbers for test in program.reach.get(n, [])})) for program in most]
  if any(tests for _, tests in near) or numbers == neighbours:
    return near
  return in_order(programs, neighbours, neighbours, folder)


def elapsed(since):
  return f'{time.monotonic() - since:.0f} s'
