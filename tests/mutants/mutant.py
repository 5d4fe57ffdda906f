# SPDX-License-Identifier: Apache-2.0
"""What a mutant is, and what becomes what."""
import re
from dataclasses import dataclass

from syntax import raw

OPPOSITE = {'==': '!=', '!=': '==', '<': '>=', '<=': '>', '>': '<=', '>=': '<'}
EDGE = {'<': '<=', '<=': '<', '>': '>=', '>=': '>'}
TEMPLATE = {'==': 'Equal', '!=': 'Unequal', '<': 'Less', '<=': 'LessEqual', '>': 'Greater',
            '>=': 'GreaterEqual'}
ALGORITHM = {'std::min': ('Min', 'std::max'), 'std::max': ('Max', 'std::min'),
             'std::any_of': ('AnyOf', 'std::all_of'), 'std::all_of': ('AllOf', 'std::any_of')}
ASSIGNMENT = {'=', '|=', '&=', '+=', '-=', '^='}
VERBATIM = {'static_assert', 'using', 'enum', 'typedef'}
UNEVALUATED = {'alignof', 'decltype', 'offsetof', 'sizeof'}
# Small enumerations are tried whole.
MOST_ENUMERATORS = 4
# Sources whose texts list names: of system calls.
LISTS_OF_NAMES = {'agent/process/syscall_filter.cc'}
MACRO_LIKE = re.compile(r'[A-Z][A-Z0-9]*_[A-Z0-9_]*[A-Z0-9]')


@dataclass
class Mutant:
  number: int
  file: str
  line: int
  where: str  # the function, or the table
  source: str  # the line, for people and for equivalent.txt
  flip: str
  nth: int = 1  # among those of which all the above but the line is the same

  def key(self):
    nth = f' ({self.nth})' if self.nth > 1 else ''
    return (self.file, self.where or '-', self.source, self.flip + nth)


@dataclass(frozen=True)
class Context:
  where: str = ''
  in_function: bool = False
  block: bool = False  # between the statements of a function, not inside of one
  body: bool = False  # between the outermost of them
  falls_through: bool = False  # something is returned where a `return` inside the function is left out
  constant: bool = False  # inside the value of a constexpr
  verdict: bool = False  # the value of a rule's target
  index: bool = False
  returns_bool: bool = False
  header: bool = False

  def but(self, **changes):
    return Context(**{**self.__dict__, **changes})


def texts_of(nodes):
  return [node.text for node in nodes if node.kind != 'group']


def text_of(nodes):
  """On one line, without comments."""
  text = re.sub(r'//[^\n]*\n|/\*.*?\*/', ' ', raw(nodes), flags=re.DOTALL)
  return ' '.join(text.split())
