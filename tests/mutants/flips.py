# SPDX-License-Identifier: Apache-2.0
"""Rewrites a source so that it holds all of its mutants (mutant.h), and says what they are.

What is flipped: each comparison (to the opposite; < <= > >= also at their edge), && and ||, each
condition that is neither, true and false, each number, enumerator and flag; in tables and constants
also each text and name, and the presence of each row. Statements are left out (statements.py), and the
condition of each `if` is left out. Lines stay where they are.
"""
from mutant import (ALGORITHM, ASSIGNMENT, EDGE, LISTS_OF_NAMES, MACRO_LIKE, MOST_ENUMERATORS, OPPOSITE,
                    TEMPLATE, UNEVALUATED, VERBATIM, Context, Mutant, text_of, texts_of)
from statements import JUMPS, can_be_deleted, goes_on_after, is_lambda_body, last_return
from syntax import Token, is_binary, is_group, parse, raw, rows_of


class Rewriter:
  """One file. `disabled` are the keys of mutants that were found not to compile."""

  def __init__(self, file, text, enumerators, first_number, disabled=(), mutate=True):
    self.file = file
    self.lines = text.split('\n')
    self.enumerators = enumerators
    self.next_number = first_number
    self.disabled = disabled
    self.mutate = mutate
    self.mutants = []
    self.seen = {}
    self.pending = ''  # the constructor whose initializers are read
    self.text = self.statements(parse(text), Context(header=file.endswith('.h')))

  # ---- numbers ----

  def mutant(self, node, where, flip):
    """A condition that is true in that mutant; None where there is to be none."""
    number = self.number(node, where, flip)
    return None if number is None else f'kipt_mutants::Is({number})'

  def number(self, node, where, flip):
    if not self.mutate:
      return None
    source = ' '.join(self.lines[node.line - 1].split())
    found = Mutant(self.next_number, self.file, node.line, where, source, flip)
    same = self.seen.get(found.key(), 0) + 1
    self.seen[found.key()] = same
    found.nth = same
    # It keeps its number: then only the files that change are compiled again.
    self.next_number += 1
    if found.key() in self.disabled:
      return None
    self.mutants.append(found)
    return found.number

  # ---- statements ----

  def statements(self, nodes, context):
    out = []
    part = []
    returns = False
    at = 0
    # What a function ends with stays: there is nothing after it.
    stays = last_return(nodes) if context.body else None
    inner = context.but(body=False)

    def flush():
      nonlocal part, returns
      if part:
        out.append(self.part(part, inner, returns))
      part = []
      returns = False

    while at < len(nodes):
      node = nodes[at]
      text = node.text if node.kind != 'group' else ''
      if text == ';' and context.block and not returns and can_be_deleted(part):
        out.append(self.deletable(part, node, self.part(part, inner, False), context))
        part = []
      elif text in (';', ',') or (text == ':' and not self.is_choice(part)):
        if text == ':' and part and is_group(part[-1], '(') and not context.in_function:
          self.pending = self.name_before(part)
        flush()
        out.append(node.raw())
      elif text in VERBATIM or text == 'case':
        flush()
        stop = ':' if text == 'case' else ';'
        while nodes[at].kind == 'group' or nodes[at].text != stop:
          out.append(nodes[at].raw())
          at += 1
        out.append(nodes[at].raw())
      elif text == 'template':
        out.append(node.raw() + nodes[at + 1].raw())
        at += 1
      elif text in ('if', 'while', 'switch', 'for'):
        flush()
        out.append(node.raw())
        at += 1
        if nodes[at].kind != 'group':  # if constexpr
          out.append(nodes[at].raw())
          at += 1
        out.append(self.condition(text, nodes[at], inner))
      elif text in JUMPS and context.block and at != stays and (
          context.falls_through or text != 'return' or nodes[at + 1].text == ';'):
        flush()
        stop = next(i for i in range(at, len(nodes)) if nodes[i].text == ';')
        rest = self.part(nodes[at + 1:stop], inner, True) if stop > at + 1 else ''
        out.append(self.deletable(nodes[at:stop], nodes[stop], node.raw() + rest, context))
        at = stop
      elif text in ('else', 'do', 'default', 'break', 'continue', 'friend'):
        flush()
        out.append(node.raw())
      elif text == 'return':
        flush()
        out.append(node.raw())
        returns = True
      elif is_group(node, '{') and self.opens_block(part, context):
        inside = self.inside_block(part, inner, node.kids)
        if inside.in_function and not context.in_function:
          part = [self.not_constexpr(kid) for kid in part]
        flush()
        self.pending = ''
        out.append(self.bracketed(node, inside))
      else:
        part.append(node)
      at += 1
    flush()
    return ''.join(out)

  def deletable(self, nodes, end, text, context):
    """`nodes;`, rewritten as `text`, in braces: what stands around it may be an if without its own."""
    lead = nodes[0].before
    active = self.mutant(nodes[0], context.where, f'`{self.short(nodes)};` left out')
    if active is None:
      return text + end.raw()
    return f'{lead}{{ if (!{active}) {text[len(lead):]}{end.raw()} }}'

  @staticmethod
  def is_choice(part):
    texts = texts_of(part)
    return texts.count('?') > texts.count(':')

  @staticmethod
  def name_before(part):
    for at, node in enumerate(part):
      if is_group(node, '(') and at > 0:
        name = part[at - 1].text
        if at > 2 and part[at - 2].text == '::':
          name = part[at - 3].text + '::' + name
        return name
    return ''

  @staticmethod
  def opens_block(part, context):
    if not part:
      return not context.constant
    if part[0].text in ('namespace', 'struct', 'class', 'union', 'extern', 'inline') and not any(
        is_group(node, '(') for node in part) and '=' not in texts_of(part):
      return part[0].text != 'inline'
    last = part[-1]
    if last.text in ('const', 'noexcept', 'override') and last.kind == 'name':
      return True
    if last.text in ('&', '&&') and len(part) > 1 and is_group(part[-2], '('):
      return True
    if is_group(last, '('):
      return not (len(part) > 1 and is_group(part[-2], '['))
    return False

  def inside_block(self, part, context, kids):
    if part and part[0].text in ('struct', 'class') and len(part) > 1:
      return context.but(where=part[1].text)
    if context.in_function or not part or not any(is_group(node, '(') for node in part):
      return context
    name = self.pending or self.name_before(part)
    texts = texts_of(part)
    result = texts[:texts.index(name.split('::')[0])] if name.split('::')[0] in texts else []
    result = [text for text in result if text not in ('inline', 'static', 'constexpr')]
    return context.but(in_function=True, where=name, returns_bool=result == ['bool'], block=True, body=True,
                       falls_through=goes_on_after(kids))

  @staticmethod
  def not_constexpr(node):
    if node.text == 'constexpr' and node.kind == 'name':
      return Token('name', 'inline', node.before, node.line)
    return node

  def bracketed(self, group, context):
    return group.opener.raw() + self.statements(group.kids, context) + group.closer.raw()

  # What stands behind if, while, switch and for.
  def condition(self, keyword, group, context):
    kids = group.kids
    texts = texts_of(kids)
    last = max((at for at, kid in enumerate(kids) if kid.text == ';' and kid.kind == 'operator'),
               default=-1)
    if keyword not in ('if', 'while') or '=' in texts_of(kids[last + 1:]):
      return self.bracketed(group, context.but(block=False))
    before = self.statements(kids[:last + 1], context.but(block=False))
    asked = kids[last + 1:]
    always = None
    if keyword == 'if' and context.block:
      always = self.mutant(asked[0], context.where, f'`{self.short(asked)}` is not asked')
    truth = self.truth(asked, context.but(block=False))
    if always is not None:
      lead = asked[0].before
      truth = f'{lead}({always} || ({truth[len(lead):]}))'
    return group.opener.raw() + before + truth + group.closer.raw()

  # ---- declarations, assignments, expressions ----

  def part(self, nodes, context, returns):
    if returns:
      if context.returns_bool and self.is_plain(nodes):
        return self.truth(nodes, context)
      return self.expression(nodes, context, returns=True)
    for at, node in enumerate(nodes):
      if node.kind == 'operator' and node.text in ASSIGNMENT and at > 0:
        return self.assignment(nodes[:at], node, nodes[at + 1:], context)
    return self.expression(nodes, context)

  def assignment(self, left, sign, right, context):
    texts = texts_of(left)
    if not right:  # a function that is `= default`
      return raw(left) + sign.raw() + raw(right)
    if not context.in_function and context.header and 'constexpr' not in texts:
      if '.' not in texts:  # of a member
        return raw(left) + sign.raw() + raw(right)
    if 'constexpr' in texts:
      first = self.next_number
      text = self.constant(left, sign, right, context)
      if 'static' in texts and context.in_function and self.next_number > first:
        # It is filled once, but each test that comes by uses it.
        text += f'; kipt_mutants::Touch({first}, {self.next_number})'
      return text
    inside = context.but(verdict=[node.text for node in left[-2:]] == ['.', 'target'])
    return self.plain(left, context) + sign.raw() + self.expression(right, inside)

  # The value of a constexpr: no longer one.
  def constant(self, left, sign, right, context):
    array = is_group(left[-1], '[')
    name = left[-2] if array else left[-1]
    inside = context.but(constant=True, where=context.where or name.text)
    const = '' if 'const' in texts_of(left) else 'const'
    member = 'static' in texts_of(left) and not context.in_function
    if member:  # else it needs a definition
      const = 'inline ' + const
    head = [Token('name', const, node.before, node.line) if node.text == 'constexpr' else node
            for node in left]
    if array and [node.text for node in left[-3:-2]] == ['char']:
      return raw(head[:-2]) + '* const' + name.raw() + sign.raw() + self.expression(right, inside)
    rows = rows_of(right)
    if not (rows and self.mutate and (array or 'array' in texts_of(left))):
      before = len(self.mutants)
      value = self.expression(right, inside)
      # The size of an array may need a member whose mutants were in the way.
      return raw(left if member and len(self.mutants) == before else head) + sign.raw() + value
    if array and len(rows) < 2:
      return raw(head) + sign.raw() + self.expression(right, inside)
    numbers = [self.number(row[0], inside.where, f'row `{self.short(row)}` removed') for row in rows]
    value = self.expression(right, inside)
    if None in numbers:
      return raw(head) + sign.raw() + value
    if not array:
      start = next(at for at, node in enumerate(head) if node.text == 'const')
      type_ = raw(head[start + 1:-1]).strip()
      lead = raw(head[:start + 1])
      return (f'{lead} auto {name.text}{sign.raw()} kipt_mutants::WithoutOne({numbers[0]}, '
              f'{type_}{value})')
    lead = raw([Token('name', '', node.before, node.line) if node.text == 'constexpr' else node
                for node in left])
    kind = 'inline ' if 'inline' in texts_of(left) else ''
    return (f'{lead}{sign.raw()}{value}; {kind}const bool {name.text}_overwritten = '
            f'kipt_mutants::OverwriteOne({numbers[0]}, {name.text})')

  @staticmethod
  def short(row):
    text = text_of(row)
    return text if len(text) <= 70 else text[:67] + '...'

  @staticmethod
  def is_plain(nodes):
    """Neither a comparison nor made of others, so that its opposite is a mutant of its own."""
    return bool(nodes) and nodes[0].text != '!' and not any(
        is_binary(nodes, at, ('?', '||', '&&', '|', '==', '!=', '<', '<=', '>', '>='))
        for at in range(len(nodes))) and not (len(nodes) == 1 and nodes[0].text in ('true', 'false'))

  # An operand of && or ||, or a condition.
  def truth(self, nodes, context):
    if not self.is_plain(nodes):
      return self.expression(nodes, context)
    active = self.mutant(nodes[0], context.where, f'`{self.short(nodes)}` negated')
    text = self.expression(nodes, context)
    if active is None:
      return text
    lead = nodes[0].before
    return f'{lead}(static_cast<bool>({text[len(lead):]}) != {active})'

  def expression(self, nodes, context, returns=False):
    if not nodes:
      return ''
    lead = nodes[0].before
    question = next((at for at in range(len(nodes)) if is_binary(nodes, at, ('?',))), None)
    if question is not None:
      depth = 0
      for at in range(question + 1, len(nodes)):
        depth += {'?': 1, ':': -1}.get(nodes[at].text if nodes[at].kind == 'operator' else '', 0)
        if depth < 0:
          break
      return (self.truth(nodes[:question], context) + nodes[question].raw() +
              self.expression(nodes[question + 1:at], context) + nodes[at].raw() +
              self.expression(nodes[at + 1:], context))
    for operators in (('||',), ('&&',), ('|',), ('==', '!='), ('<', '<=', '>', '>=')):
      at = next((at for at in reversed(range(len(nodes))) if is_binary(nodes, at, operators)), None)
      if at is not None:
        return self.binary(nodes[:at], nodes[at], nodes[at + 1:], context)
    if nodes[0].text == '!' and nodes[0].kind == 'operator':
      active = self.mutant(nodes[0], context.where, f'`{self.short(nodes)}` loses its !')
      text = self.plain(nodes[1:], context)
      return f'{lead}!{text}' if active is None else f'{lead}(static_cast<bool>({text}) == {active})'
    if context.verdict:
      active = self.mutant(nodes[0], context.where, f'verdict `{self.short(nodes)}` becomes another')
      text = self.plain(nodes, context.but(verdict=False))
      if active is None:
        return text
      other = 'netlink::Return{}' if 'Drop' in texts_of(nodes) else 'netlink::Drop{}'
      return f'{lead}({active} ? netlink::Target({other}) : netlink::Target({text[len(lead):]}))'
    if (returns or context.constant) and all(node.kind == 'string' for node in nodes):
      return self.text_cell(nodes, context)
    if context.constant and len(nodes) == 1 and nodes[0].kind == 'name' and nodes[0].text not in (
        'true', 'false', 'nullptr'):
      return self.cell(nodes[0], context)
    return self.plain(nodes, context)

  def text_cell(self, nodes, context):
    lead = nodes[0].before
    active = self.mutant(nodes[0], context.where, f'`{self.short(nodes)}` becomes another text')
    text = raw(nodes)[len(lead):]
    names = nodes[0].text.strip('"').split(' ') if len(nodes) == 1 and context.constant else []
    if self.file in LISTS_OF_NAMES and len(names) > 1:
      numbers = [self.number(nodes[0], context.where, f'`{name}` left out of the list') for name in names]
      if None not in numbers:
        text = f'kipt_mutants::WithoutName({numbers[0]}, {text})'
    return lead + (text if active is None else f'({active} ? "another text" : {text})')

  def binary(self, left, sign, right, context):
    lead = left[0].before
    if sign.text in ('&&', '||'):
      other = '||' if sign.text == '&&' else '&&'
      active = self.mutant(sign, context.where, f'`{sign.text}` becomes `{other}`')
      a = self.truth(left, context)
      b = self.truth(right, context)
      if active is None:
        return a + sign.raw() + b
      # a || b is !(!a && !b): the operands are read once, and the second only when it counts.
      space = right[0].before
      return (f'{lead}(((static_cast<bool>({a[len(lead):]}) != {active}){sign.raw()}{space}'
              f'(static_cast<bool>({b[len(space):]}) != {active})) != {active})')
    if sign.text == '|':
      a = self.expression(left, context)
      b = self.expression(right, context)
      if '|' not in texts_of(left):
        a = self.flag(left, a, context)
      return a + sign.raw() + self.flag(right, b, context)
    names = [OPPOSITE[sign.text]]
    if sign.text in EDGE:
      names.insert(0, EDGE[sign.text])
    numbers = [self.number(sign, context.where, f'`{sign.text}` becomes `{name}`') for name in names]
    a = self.expression(left, context)
    b = self.expression(right, context)
    if None in numbers:
      return a + sign.raw() + b
    list_ = ', '.join(str(number) for number in numbers)
    return (f'{lead}kipt_mutants::{TEMPLATE[sign.text]}({list_}, {a[len(lead):]},{sign.before}{b})')

  def flag(self, nodes, text, context):
    number = self.number(nodes[0], context.where, f'flag `{self.short(nodes)}` not set')
    lead = nodes[0].before
    return text if number is None else f'{lead}kipt_mutants::Flag({number}, {text[len(lead):]})'

  def cell(self, node, context):
    number = self.number(node, context.where, f'`{node.text}` becomes another')
    return node.raw() if number is None else f'{node.before}kipt_mutants::Cell({number}, {node.text})'

  # No operator between here and the next bracket that is looked at.
  def plain(self, nodes, context):
    out = []
    at = 0
    while at < len(nodes):
      node = nodes[at]
      name_end = self.qualified(nodes, at)
      if is_group(node, '{') and is_lambda_body(nodes, at):
        out.append(self.bracketed(node, context.but(
            index=False, verdict=False, returns_bool=False, constant=False, block=context.in_function,
            body=context.in_function, falls_through=goes_on_after(node.kids))))
      elif node.text in UNEVALUATED and at + 1 < len(nodes) and is_group(nodes[at + 1], '('):
        out.append(node.raw() + nodes[at + 1].raw())
        at += 1
      elif node.kind == 'group':
        out.append(self.group(node, context))
      elif name_end > at + 1:
        at = self.qualified_name(nodes, at, name_end, out, context)
        continue
      elif node.text in ('true', 'false'):
        other = 'false' if node.text == 'true' else 'true'
        active = self.mutant(node, context.where, f'`{node.text}` becomes `{other}`')
        out.append(node.raw() if active is None else f'{node.before}({active} != {node.text})')
      elif node.kind == 'number' and not context.index and node.text.isalnum():
        active = self.mutant(node, context.where, f'`{node.text}` becomes `{node.text} + 1`')
        out.append(node.raw() if active is None else f'{node.before}({node.text} + {active})')
      elif node.kind == 'name' and MACRO_LIKE.fullmatch(node.text) and not (
          at + 1 < len(nodes) and is_group(nodes[at + 1], '(')):
        out.append(self.cell(node, context))
      else:
        out.append(node.raw())
      at += 1
    return ''.join(out)

  def group(self, group, context):
    if group.text == '<':
      return group.raw()
    context = context.but(block=False)
    pending = self.pending  # an initializer may hold brackets that look like a block
    if group.text == '[':
      text = self.bracketed(group, context.but(index=True, constant=False))
    elif group.text == '(':
      text = self.bracketed(group, context.but(index=False, verdict=False))
    else:
      text = self.bracketed(group, context.but(index=False, verdict=False, returns_bool=False))
    self.pending = pending
    return text

  @staticmethod
  def qualified(nodes, at):
    """The end of `a::b::c` that begins here."""
    end = at
    while end < len(nodes) and nodes[end].kind == 'name':
      end += 1
      if end + 1 < len(nodes) and nodes[end].text == '::' and nodes[end + 1].kind == 'name':
        end += 1
      else:
        break
    return end

  def qualified_name(self, nodes, at, end, out, context):
    name = ''.join(node.text for node in nodes[at:end])
    node = nodes[at]
    if name in ALGORITHM and end < len(nodes) and is_group(nodes[end], '('):
      function, other = ALGORITHM[name]
      active = self.mutant(node, context.where, f'`{name}` becomes `{other}`')
      if active is not None:
        inside = self.statements(nodes[end].kids, context.but(verdict=False, block=False))
        out.append(f'{node.before}kipt_mutants::{function}({active}, {inside})')
        return end + 1
    scope, _, enumerator = name.rpartition('::')
    known = self.enumerators.get(scope.rpartition('::')[2], [])
    others = [other for other in known if other != enumerator]
    if enumerator not in known or not others:
      out.append(''.join(part.raw() for part in nodes[at:end]))
      return end
    if len(known) > MOST_ENUMERATORS:
      others = [known[(known.index(enumerator) + 1) % len(known)]]
    text = name
    for other in others:
      active = self.mutant(node, context.where, f'`{enumerator}` becomes `{other}`')
      if active is not None:
        text = f'{active} ? {scope}::{other} : {text}'
    out.append(node.before + (text if text == name else f'({text})'))
    return end
