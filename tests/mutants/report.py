# SPDX-License-Identifier: Apache-2.0
"""equivalent.txt, and the table of who caught what."""
from collections import Counter


def read_equivalents(path):
  """By key of a mutant, why nothing can tell it from the original."""
  reasons = {}
  with open(path, encoding='utf-8') as file:
    for number, line in enumerate(file, 1):
      if line.startswith('#') or not line.strip():
        continue
      cells = line.rstrip('\n').split('\t')
      if len(cells) != 5 or not all(cells):
        raise ValueError(f'{path}:{number}: want five cells with a tab between them: file, function, '
                         'line, flip, reason')
      if tuple(cells[:4]) in reasons:
        raise ValueError(f'{path}:{number}: said twice')
      reasons[tuple(cells[:4])] = cells[4]
  return reasons


def cell(text):
  return text.replace('|', '\\|')


def code(text):
  fence = '``' if '`' in text else '`'
  return cell(f'{fence}{text}{fence}')


def who(outcome):
  how = {'crashed': ', which crashed', 'time limit': ', at its time limit'}.get(outcome.how, '')
  return outcome.caught_by + how


def summary(mutants, outcomes, equivalents, unviable):
  caught = [m for m in mutants if outcomes[m.number].caught_by]
  how = Counter(outcomes[m.number].how for m in caught)
  equal = [m for m in mutants if m.key() in equivalents and not outcomes[m.number].caught_by]
  return (f'{len(mutants)} mutants: {len(caught)} caught ({how["failed"]} by a failed expectation, '
          f'{how["crashed"]} by a crash, {how["time limit"]} at a time limit), '
          f'{len(equal)} equivalent, {len(mutants) - len(caught) - len(equal)} alive. '
          f'{len(unviable)} more do not compile.')


def write(path, mutants, outcomes, equivalents, unviable):
  """All of them, file by file."""
  out = ['# Mutants, and who caught them', '',
         'Written by `tests/mutants/run`; README.md beside it says what this is.', '',
         summary(mutants, outcomes, equivalents, unviable), '',
         '| file | mutants | caught | equivalent | alive |', '|---|---:|---:|---:|---:|']
  files = sorted({m.file for m in mutants})
  for file in files:
    own = [m for m in mutants if m.file == file]
    caught = sum(1 for m in own if outcomes[m.number].caught_by)
    equal = sum(1 for m in own if m.key() in equivalents and not outcomes[m.number].caught_by)
    out.append(f'| {file} | {len(own)} | {caught} | {equal} | {len(own) - caught - equal} |')
  for file in files:
    out += ['', f'## {file}', '', '| line | in | flip | caught by |', '|---:|---|---|---|']
    for m in sorted((m for m in mutants if m.file == file), key=lambda m: (m.line, m.number)):
      outcome = outcomes[m.number]
      by = who(outcome) if outcome.caught_by else (
          'equivalent: ' + equivalents[m.key()] if m.key() in equivalents else '**nobody**')
      out.append(f'| {m.line} | {cell(m.where)} | {cell(m.flip)} | {cell(by)} |')
  if unviable:
    out += ['', '## Not viable: these do not compile', '', '| file | line | in | flip |',
            '|---|---:|---|---|']
    out += [f'| {m.file} | {m.line} | {cell(m.where)} | {cell(m.flip)} |' for m in unviable]
  with open(path, 'w', encoding='utf-8') as file:
    file.write('\n'.join(out) + '\n')
