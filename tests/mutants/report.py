# SPDX-License-Identifier: Apache-2.0
"""What a run found: kept by source in the build directory, all of it listed there, and in short in report.md."""
import hashlib
import json
import os
import re
import subprocess
from collections import Counter

# Of report.md, so that it stays one page.
MOST_FILES = 30
MOST_SURVIVORS = 10


def stamp(root):
  """Version and commit of the sources, with a + where they differ from it."""
  with open(os.path.join(root, 'CMakeLists.txt'), encoding='utf-8') as file:
    version = re.search(r'VERSION (\d[\d.]*)', re.search(r'project\([^)]*\)', file.read()).group()).group(1)
  said = [subprocess.run(['git', '-C', root, *words], capture_output=True, text=True, check=False).stdout.strip()
          for words in (('rev-parse', '--short=12', 'HEAD'), ('status', '--porcelain', '--untracked-files=no'))]
  return version, (said[0] or 'unknown') + ('+' if said[1] else '')


def digests(root, files):
  """By file, what tells its text from any other."""
  found = {}
  for file in files:
    with open(os.path.join(root, file), 'rb') as text:
      found[file] = hashlib.sha256(text.read()).hexdigest()
  return found


def judged(key, caught_by, lists):
  """A verdict, and its reason."""
  if caught_by:
    return 'caught', caught_by
  if key in lists.equivalents:
    return 'equivalent', lists.equivalents[key]
  return ('known' if key in lists.alive else 'alive'), ''


def record_path(folder, file):
  return os.path.join(folder, file.replace('/', '_') + '.json')


def keep(folder, stamped, files, mutants, outcomes, unviable, tests=''):
  """Writes a record for each of `files`, by digest, which were tried whole; `tests` says which tests, if not all."""
  os.makedirs(folder, exist_ok=True)
  version, commit = stamped
  for file, digest in files.items():
    rows = []
    for m in sorted((m for m in mutants if m.file == file), key=lambda m: (m.line, m.number)):
      rows.append([m.line, m.where, m.flip, outcomes[m.number].caught_by, outcomes[m.number].how, m.key()])
    record = {'file': file, 'digest': digest, 'version': version, 'commit': commit, 'rows': rows,
              'tests': tests,
              'unviable': [[m.line, m.where, m.flip] for m in unviable if m.file == file]}
    with open(record_path(folder, file), 'w', encoding='utf-8') as out:
      json.dump(record, out)


def keep_survivors(folder, stamped, mutants, outcomes, tests=''):
  """Corrects the records by the outcomes of mutants that lived when they were written."""
  for record in stored(folder, sorted({m.file for m in mutants})):
    tried = {m.key(): outcomes[m.number] for m in mutants if m.file == record['file']}
    for row in record['rows']:
      if tuple(row[5]) in tried:
        row[3:5] = [tried[tuple(row[5])].caught_by, tried[tuple(row[5])].how]
    record['survivors_commit'] = stamped[1]
    record['tests'] = tests and record.get('tests', '')
    with open(record_path(folder, record['file']), 'w', encoding='utf-8') as out:
      json.dump(record, out)


def survivors(folder, files):
  """The keys of mutants that no test caught when they were tried last, in their order."""
  return [tuple(row[5]) for record in stored(folder, files) for row in record['rows'] if not row[3]]


def records(folder, files, lists, unsettled=False):
  """Those of `files`, by digest, that are as they were when they were tried, each row with its verdict: line,
  function, flip, verdict, how, by whom or why. Where some tests did not run, what is alive may be caught by one of
  them: such a record is left out unless `unsettled`."""
  found = [record for record in stored(folder, files) if record.get('digest') == files[record['file']]]
  for record in found:
    record['rows'] = [row[:3] + [judged(tuple(row[5]), row[3], lists)[0], row[4],
                                 judged(tuple(row[5]), row[3], lists)[1]] for row in record['rows']]
  return [record for record in found
          if unsettled or not record.get('tests') or not any(counts([record])[v] for v in ('known', 'alive'))]


def stored(folder, files):
  found = []
  for file in files:
    if os.path.exists(record_path(folder, file)):
      with open(record_path(folder, file), encoding='utf-8') as record:
        found.append(json.load(record))
  return found


def counts(group):
  return Counter(row[3] for record in group for row in record['rows'])


def summary(group):
  how = Counter(row[4] for record in group for row in record['rows'] if row[3] == 'caught')
  of = counts(group)
  return (f'{sum(of.values())} mutants: {of["caught"]} caught ({how["failed"]} by a failed expectation, '
          f'{how["crashed"]} by a crash, {how["time limit"]} at a time limit), '
          f'{of["equivalent"]} equivalent, {of["known"]} known to be alive, {of["alive"]} alive. '
          f'{sum(len(record["unviable"]) for record in group)} more do not compile.')


def cell(text):
  return text.replace('|', '\\|')


def table(name, groups):
  out = [f'| {name} | mutants | caught | equivalent | known alive | alive |', '|---|---:|---:|---:|---:|---:|']
  for title, group in groups:
    of = counts(group)
    out.append(f'| {title} | {sum(of.values())} | {of["caught"]} | {of["equivalent"]} | {of["known"]} | '
               f'{of["alive"]} |')
  return out


def write_all(path, found):
  """Every mutant of every source, with the test that caught it."""
  out = ['# Mutants, and which test catches each', '', summary(found)]
  for record in found:
    out += ['', f'## {record["file"]}', '', f'Version {record["version"]}, commit {record["commit"]}.', '',
            '| line | in | flip | caught by |', '|---:|---|---|---|']
    for line, where, flip, verdict, how, by in record['rows']:
      if verdict == 'caught':
        by += {'crashed': ', which crashed', 'time limit': ', at its time limit'}.get(how, '')
      else:
        by = {'equivalent': f'equivalent: {by}', 'known': 'none (alive.txt)', 'alive': '**none**'}[verdict]
      out.append(f'| {line} | {cell(where)} | {cell(flip)} | {cell(by)} |')
    out += [f'| {line} | {cell(where)} | {cell(flip)} | does not compile |'
            for line, where, flip in record['unviable']]
  with open(path, 'w', encoding='utf-8') as file:
    file.write('\n'.join(out) + '\n')


def write_short(path, found, files):
  """One page: by folder, and the sources with mutants that live."""
  folders = sorted({os.path.dirname(record['file']) for record in found})
  out = ['# Mutants', '', 'Written by `tests/mutants/run`. README.md in this directory says what a mutant is.', '',
         summary(found), '']
  stamps = Counter((os.path.dirname(record['file']), record['version'], record['commit'],
                    record.get('survivors_commit') or '', record.get('tests') or '') for record in found)
  for (folder, version, commit, again, tests), number in sorted(stamps.items()):
    out.append(f'- {number} of {folder}: version {version}, commit {commit}'
               f'{f", survivors again with commit {again}" if again else ""}'
               f'{f", with fewer tests ({tests})" if tests else ""}.')
  not_tried = [file for file in files if file not in {record['file'] for record in found}]
  if not_tried:
    of = Counter(os.path.dirname(file) for file in not_tried)
    out.append(f'- {len(not_tried)} sources were not tried as they are now: '
               f'{", ".join(f"{number} of {folder}" for folder, number in sorted(of.items()))}.')
  out += [''] + table('folder', [
      (folder, [record for record in found if os.path.dirname(record['file']) == folder])
      for folder in folders])
  lives = sorted((record for record in found if counts([record])['known'] + counts([record])['alive']),
                 key=lambda record: -counts([record])['known'] - counts([record])['alive'])
  if lives:
    shown, rest = lives[:MOST_FILES], lives[MOST_FILES:]
    groups = [(record['file'], [record]) for record in shown]
    if rest:
      groups.append((f'{len(rest)} more sources', rest))
    out += ['', 'Sources with mutants that no test catches (each is a line of alive.txt):', ''] + table(
        'source', groups)
  alive = [(record['file'], row) for record in found for row in record['rows'] if row[3] == 'alive']
  if alive:
    out += ['', 'Alive, and in neither list:', '']
    out += [f'- {file}:{row[0]}, {row[1]}: {row[2]}' for file, row in alive[:MOST_SURVIVORS]]
    if len(alive) > MOST_SURVIVORS:
      out.append(f'- and {len(alive) - MOST_SURVIVORS} more')
  with open(path, 'w', encoding='utf-8') as file:
    file.write('\n'.join(out) + '\n')
