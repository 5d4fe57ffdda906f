# SPDX-License-Identifier: Apache-2.0
"""Which statements of a function can be left out of it, so that what remains still compiles."""
from mutant import ASSIGNMENT, text_of, texts_of
from syntax import is_group

# What begins a declaration, or nothing that has an effect.
NOT_DELETED = {'auto', 'case', 'class', 'const', 'constexpr', 'default', 'delete', 'else', 'goto', 'private',
               'protected', 'public', 'static', 'static_cast', 'struct', 'template', 'thread_local', 'throw',
               'typename', 'using'}
# Its only effects are a log line, and memory taken earlier.
WITHOUT_EFFECT = {'LOG', 'VLOG', 'reserve', 'shrink_to_fit'}
JUMPS = ('break', 'continue', 'return')
BETWEEN_STATEMENTS = {';', ':', 'else', 'do'}


def declares(nodes):
  """Whether two names follow each other, or a name follows a type that ends with > or * or &."""
  for at, (node, follower) in enumerate(zip(nodes, nodes[1:])):
    if follower.kind == 'name' and (node.kind == 'name' or is_group(node, '<')):
      return True
    if at > 0 and node.kind == 'operator' and node.text in ('*', '&', '&&') and node.before == '' and (
        follower.before != ''):
      return True
  return False


def can_be_deleted(nodes):
  """Whether `nodes;` is a call whose result is not used, an assignment or a step."""
  texts = texts_of(nodes)
  if not texts or texts[0] in NOT_DELETED or not WITHOUT_EFFECT.isdisjoint(texts):
    return False
  if {'++', '--'} & {texts[0], texts[-1]}:
    return True
  sign = next((at for at, node in enumerate(nodes)
               if node.kind == 'operator' and node.text in ASSIGNMENT), None)
  if sign is not None:
    return sign > 0 and not declares(nodes[:sign])
  if declares(nodes):
    return False
  return is_group(nodes[-1], '(') or '<<' in texts


def last_return(kids):
  """Where in the body of a function the `return` is that ends it; None where it does not end so."""
  at = max((at for at, kid in enumerate(kids) if kid.kind == 'name' and kid.text == 'return'), default=None)
  if at is None or any(kid.text == ';' for kid in kids[at:-1]) or kids[-1].text != ';':
    return None
  before = kids[at - 1] if at > 0 else None
  guarded = before is not None and (is_group(before, '(') or before.text == 'else')
  return None if guarded else at


def goes_on_after(kids):
  """Whether a function with that body has a value to return when a `return` inside of it is left out."""
  if last_return(kids) is not None:
    return True
  # A loop that is last, and returns something, never ends.
  return len(kids) > 2 and is_group(kids[-1], '{') and is_group(kids[-2], '(') and kids[-3].text in (
      'for', 'while') and 'return' in text_of(kids)


def is_lambda_body(nodes, at):
  """Whether the bracket { at `at` holds the statements of a lambda."""
  before = at - 1
  while before >= 0 and not is_group(nodes[before], '(') and not is_group(nodes[before], '['):
    if nodes[before].text not in ('mutable', '->', '::', '*', '&', '<') and nodes[before].kind != 'name':
      return False
    before -= 1
  if before >= 0 and is_group(nodes[before], '('):
    before -= 1
  if before < 0 or not is_group(nodes[before], '['):
    return False
  return before == 0 or not (nodes[before - 1].kind == 'name' and nodes[before - 1].text not in (
      'return',)) and not is_group(nodes[before - 1], '(')
