# SPDX-License-Identifier: Apache-2.0
"""equivalent.txt and alive.txt: which mutants may live, and whether what the lists claim is true."""


def read(path, cells):
  """By key of a mutant, the rest of its line."""
  found = {}
  with open(path, encoding='utf-8') as file:
    for number, line in enumerate(file, 1):
      if line.startswith('#') or not line.strip():
        continue
      parts = line.rstrip('\n').split('\t')
      if len(parts) != cells or not all(parts):
        raise ValueError(f'{path}:{number}: needs {cells} cells with a tab between them: file, function, '
                         f'line, flip{", reason" if cells == 5 else ""}')
      if tuple(parts[:4]) in found:
        raise ValueError(f'{path}:{number}: a second line for this mutant')
      found[tuple(parts[:4])] = parts[4] if cells == 5 else ''
  return found


class Lists:
  """What may live: `equivalents` with their reasons, and `alive`, which no test catches yet."""

  def __init__(self, equivalent_path, alive_path):
    self.equivalents = read(equivalent_path, 5)
    self.alive = read(alive_path, 4)
    self.alive_path = alive_path
    both = sorted(self.equivalents.keys() & self.alive.keys())
    if both:
      raise ValueError(f'equivalent.txt and alive.txt both have {both[0]}')

  def allows(self, mutant):
    return mutant.key() in self.equivalents or mutant.key() in self.alive

  def files(self):
    return {key[0] for key in [*self.equivalents, *self.alive]}

  def write_alive(self, survivors, files):
    """Replaces what alive.txt holds of `files` by those of the keys `survivors` that may not live otherwise."""
    with open(self.alive_path, encoding='utf-8') as file:
      head = [line for line in file.read().split('\n') if line.startswith('#')]
    kept = [key for key in self.alive if key[0] not in files]
    found = [key for key in survivors if key[0] in files and key not in self.equivalents]
    self.alive = {key: '' for key in sorted(kept + found, key=lambda key: key[0])}
    with open(self.alive_path, 'w', encoding='utf-8') as file:
      file.write('\n'.join(head + ['\t'.join(key) for key in self.alive]) + '\n')

  def wrong(self, mutants, outcomes, files, all_tried):
    """Lines that say what the lists claim and the run denies, or the other way round."""
    for mutant in mutants:
      if not outcomes[mutant.number].caught_by and not self.allows(mutant):
        tab = '\t'
        yield (f'ALIVE {mutant.file}:{mutant.line}, {outcomes[mutant.number].tests} tests reach it:\n'
               f'{tab.join(mutant.key())}')
    tried = {m.key(): outcomes[m.number] for m in mutants}
    for name, list_ in (('equivalent.txt', self.equivalents), ('alive.txt', self.alive)):
      for key in list_:
        if key[0] not in files:
          continue
        if key in tried:
          if tried[key].caught_by:
            yield f'{name}: {tried[key].caught_by} catches this one; delete its line: {key}'
        elif all_tried:
          yield f'{name}: there is no such mutant: {key}'
