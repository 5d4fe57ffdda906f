# SPDX-License-Identifier: Apache-2.0
"""As much of C++ as the mutants need: tokens, and the brackets they stand in.

The sources are formatted (`format-check`), so white space tells an operator from a bracket: a binary
operator has it on both sides, the `<` of a template on none.
"""
import re
from dataclasses import dataclass, field

TOKEN = re.compile(r'''
    (?P<trivia>(?:\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*)+)
  | (?P<string>(?:u8|[LuU])?"(?:\\.|[^"\\])*")
  | (?P<char>'(?:\\.|[^'\\])+')
  | (?P<number>(?:0[xX][0-9a-fA-F']+|\d[\d']*(?:\.\d+)?)[uUlLfF]*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<operator><=>|<<=|\.\.\.|::|->|\+\+|--|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)
''', re.VERBOSE | re.DOTALL | re.MULTILINE)

CLOSER = {'(': ')', '[': ']', '{': '}', '<': '>'}


@dataclass
class Token:
  kind: str
  text: str
  before: str  # white space, comments and preprocessor lines
  line: int

  def raw(self):
    return self.before + self.text


@dataclass
class Group:
  """What stands between two brackets; '<' only for those of templates."""
  opener: Token
  kids: list = field(default_factory=list)
  closer: Token = None

  kind = 'group'

  @property
  def text(self):
    return self.opener.text

  @property
  def before(self):
    return self.opener.before

  @property
  def line(self):
    return self.opener.line

  def raw(self):
    return self.opener.raw() + raw(self.kids) + self.closer.raw()


def raw(nodes):
  return ''.join(node.raw() for node in nodes)


def is_group(node, opener):
  return node.kind == 'group' and node.text == opener


def tokens_of(text):
  """Ends with an empty token that holds what stands behind the last one."""
  line = 1
  before = ''
  found = []
  for match in TOKEN.finditer(text):
    if match.lastgroup == 'trivia':
      before += match.group()
    else:
      found.append(Token(match.lastgroup, match.group(), before, line))
      before = ''
    line += match.group().count('\n')
  found.append(Token('end', '', before, line))
  return found


def opens_template(token, previous):
  if token.text != '<' or previous is None:
    return False
  if previous.text == 'template':
    return True
  return token.before == '' and previous.kind == 'name' and previous.text != 'operator'


def parse(text):
  """The file as a list of tokens and groups."""
  top = []
  stack = [(None, top)]
  previous = None
  for token in tokens_of(text):
    group, kids = stack[-1]
    if group is not None and token.text == CLOSER[group.text] and token.kind == 'operator':
      group.closer = token
      stack.pop()
    elif token.kind == 'operator' and (token.text in '([{' or opens_template(token, previous)):
      opened = Group(token)
      kids.append(opened)
      stack.append((opened, opened.kids))
    else:
      kids.append(token)
    previous = token
  if len(stack) != 1:
    raise ValueError(f'line {stack[-1][0].line}: a bracket that is never closed')
  return top


def is_binary(nodes, at, operators):
  """Whether nodes[at] is one of `operators` between two operands."""
  node = nodes[at]
  return (node.kind == 'operator' and node.text in operators and 0 < at < len(nodes) - 1
          and node.before != '' and nodes[at + 1].before != '')


def rows_of(nodes):
  """The rows of `{a, b}`."""
  if len(nodes) != 1 or not is_group(nodes[0], '{'):
    return []
  rows = [[]]
  for node in nodes[0].kids:
    if node.text == ',' and node.kind == 'operator':
      rows.append([])
    else:
      rows[-1].append(node)
  return [row for row in rows if row]


def enumerators_of(text):
  """What `enum class` declarations of a file there are: name, then the enumerators in order."""
  found = {}
  for match in re.finditer(r'enum class (\w+)[^{;]*\{(.*?)\}', text, re.DOTALL):
    body = re.sub(r'//[^\n]*|/\*.*?\*/', '', match.group(2), flags=re.DOTALL)
    found[match.group(1)] = re.findall(r'(k\w+)', body)
  return found
