// SPDX-License-Identifier: Apache-2.0
//
// One cell, opened: why what failed, then its steps, with both sides next to each other.
// All text enters the page as text, never as markup.

// element('p', {class: 'x', onclick: f}, 'text', child, ...); null children are left out.
function element(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(key, value === true ? '' : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

function mark(verdict) {
  return element('span', {class: 'mark v' + verdict, title: VERDICTS[verdict]}, GLYPHS[verdict]);
}

// A list that is made when it is first opened: a page with all of them at once would be slow.
function later(attributes, summary, make) {
  const details = element('details', attributes, element('summary', {}, summary));
  let made = false;
  const fill = () => {
    if (!made && details.open) details.append(make());
    made = made || details.open;
  };
  details.addEventListener('toggle', fill);
  fill();
  return details;
}

function reasonText(because) {
  return because || 'No known reason.';
}

// ---- packets ----

function checkFacts(check) {
  return [
    `${check.name}: ${check.from} \u2192 ${check.to}` + (check.kind === 'martian' ? ', martian' : ''),
    (check.connections > 1 ? check.connections + ' connections, ' : '') +
        `sent ${check.sent}, received ${check.received}` + (check.receivers ? ' (' + check.receivers + ')' : ''),
    check.seenSource && 'seen from ' + check.seenSource,
    check.droppedBy && 'dropped by ' + check.droppedBy,
    check.detail,
  ].filter(Boolean).join('; ');
}

function streamFacts(stream) {
  const fates = [
    [stream.served, 'served'], [stream.masqueraded, 'served, masqueraded'],
    [stream.reachedHost, 'reached a program on the node'], [stream.forwarded, 'reached the next hop'],
    [stream.other, 'served, seen from another address'], [stream.nobody, 'not received'],
  ];
  return `${plural(stream.sent, 'packet')}: ` +
      fates.filter(([count]) => count > 0).map(([count, fate]) => `${count} ${fate}`).join(', ') +
      (stream.served + stream.masqueraded > 0 ? `; the longest run of which none was served: ${stream.gap}` : '') +
      (stream.bad > 0 ? `; ${stream.bad} broke the rule, ${stream.allowed} of which are explained` : '');
}

function checkHalf(check) {
  return [
    mark(check.state), ' ', element('b', {}, check.got),
    check.complaint ? ', but ' + check.complaint : null,
    check.expected !== check.got && check.expected !== check.sound ? ', expected here: ' + check.expected : null,
  ];
}

function streamHalf(stream) {
  const bar = element('span', {class: 'bar'});
  bar.append(element('span', {
    class: 'v' + stream.state, style: `width: ${stream.sent > 0 ? 100 * stream.bad / stream.sent : 0}%`,
  }));
  return [
    mark(stream.state), ' ',
    stream.bad > 0 ? [element('b', {}, `broken by ${stream.bad}`), ` of ${plural(stream.sent, 'packet')}`, bar] :
        `kept by ${plural(stream.sent, 'packet')}`,
  ];
}

// One line for all questions that were answered alike; opened, each of them.
function rowItem(row) {
  const [first] = row.of;
  const of = (side) => {
    const item = first[side];
    const content = !item ? '\u2013' : row.isStream ? streamHalf(item) : checkHalf(item);
    return element('span', {class: 'half-text' + (item && item.state === 0 ? ' fine' : ''), 'data-with': withSide(side)}, content);
  };
  const any = first.a || first.b;
  const names = row.of.map((one) => one.name);
  const facts = (side) => element('ul', {}, row.of.filter((one) => one[side]).map((one) =>
      element('li', {}, row.isStream ? streamFacts(one[side]) : checkFacts(one[side]))));
  return element('li', {class: 'row s' + row.state}, later({}, [
    element('span', {class: 'what'}, element('code', {}, row.what), ' ', element('small', {}, variantsOf(names))),
    element('span', {class: 'should'}, any.sound), SIDES.map(of),
  ], () => element('div', {class: 'sides facts'}, SIDES.map((side) =>
      element('div', {class: 'side', 'data-with': withSide(side)}, facts(side))))));
}

function rowList(rows) {
  return element('ul', {class: 'rows'}, rows.map(rowItem));
}

function groupItem(group) {
  const {a, b} = group.reasons;
  return [
    a === b ? element('p', {class: 'because'}, reasonText(a)) :
        SIDES.map((side) => element('p', {class: 'because'},
            element('b', {}, withSide(side) + ': '), reasonText(group.reasons[side]))),
    rowList(group.rows),
  ];
}

// ---- rules ----

function rulesOf(data, step) {
  return data.rules[step.rules].map((index) => data.lines[index]);
}

// Only what changed, with the number of lines that did not; `all` shows those too.
function diffView(diff, all) {
  const view = element('div', {class: 'diff'});
  for (const table of diff.tables) {
    if (!table.changed && !all) continue;
    view.append(element('div', {class: 'table'}, table.title));
    let same = 0;
    const skip = () => {
      if (same > 0) view.append(element('div', {class: 'same'}, '\u2026 ' + plural(same, 'unchanged line')));
      same = 0;
    };
    for (const {sign, line} of table.diff) {
      if (sign === ' ' && !all) {
        ++same;
        continue;
      }
      skip();
      const name = sign === '+' ? 'added' : sign === '-' ? 'removed' : 'kept';
      view.append(element('div', {class: name}, sign + ' ' + line));
    }
    skip();
  }
  return view;
}

function diffOf(label, before, after) {
  const diff = diffRules(before, after);
  const changed = diff.added + diff.removed > 0;
  if (!changed && after.length === 0) return null;
  const counts = changed ? `+${diff.added} \u2212${diff.removed} lines` : 'no difference';
  return later({}, `${label}: ${counts}`, () => {
    const box = element('div', {});
    const whole = element('input', {type: 'checkbox', checked: !changed});
    const draw = () => box.lastChild.replaceWith(diffView(diff, whole.checked));
    whole.addEventListener('change', draw);
    box.append(element('label', {class: 'whole'}, whole, ' unchanged lines too'), diffView(diff, !changed));
    return box;
  });
}

function rulesItems(data, cells, at) {
  const step = (side, number) => cells[side] && cells[side].steps[number];
  const rules = (side, number) => step(side, number) ? rulesOf(data, step(side, number)) : [];
  return [
    SIDES.map((side) => step(side, at) ?
        diffOf(`Rules ${withSide(side)}, before and after this step`, rules(side, at - 1), rules(side, at)) : null),
    step('a', at) && step('b', at) ?
        diffOf(`Rules ${withSide('a')}, and what is different ${withSide('b')}`, rules('a', at), rules('b', at)) : null,
  ];
}

// ---- steps ----

function errorItem(step, side) {
  return element('div', {class: 'error s' + step.errorState}, mark(step.errorState), ' ',
      element('b', {}, withSide(side)), step.errorState === 1 ? ' it failed, as expected: ' : ' it failed: ',
      element('code', {}, step.error),
      step.errorBecause ? element('p', {class: 'because'}, step.errorBecause) : null);
}

function scoreOf(data, step) {
  const count = total(stepNotSound(data, step));
  return [mark(step.verdict), count > 0 ? ' ' + count : null];
}

function soundItems(questions) {
  const sound = questions.filter((question) => worst(question) === 0);
  if (sound.length === 0) return null;
  const streams = sound.filter((question) => (question.a || question.b).gap !== undefined).length;
  const text = [[sound.length - streams, 'sound check'], [streams, 'sound stream']]
      .filter(([count]) => count > 0).map(([count, word]) => plural(count, word)).join(', ');
  return later({}, text, () => rowList(rowsOf(sound)));
}

function stepItem(data, cells, at) {
  const there = SIDES.filter((side) => cells[side] && cells[side].steps[at]);
  const steps = Object.fromEntries(there.map((side) => [side, cells[side].steps[at]]));
  const asked = (read) => sideBySide(Object.fromEntries(SIDES.map((side) =>
      [side, steps[side] ? read(data, steps[side]) : []])));
  const make = () => {
    const questions = [...asked(checksOf), ...asked(streamsOf)];
    const groups = groupsOf(questions);
    const done = there.filter((side) => steps[side].done.length > 0);
    return element('div', {class: 'inside'},
        SIDES.filter((side) => cells[side] && !steps[side]).map((side) =>
            element('p', {class: 'quiet'}, `This step was not reached ${withSide(side)}.`)),
        there.filter((side) => steps[side].errorState > 0).map((side) => errorItem(steps[side], side)),
        groups.length > 0 ? element('p', {class: 'columns', 'aria-hidden': 'true'},
            ['packets', 'sound would be', ...SIDES.map(withSide)].map((name) => element('span', {}, name))) : null,
        groups.map(groupItem),
        questions.length === 0 ? element('p', {class: 'quiet'}, 'This step has no checks and no streams.') : null,
        element('div', {class: 'folds'}, soundItems(questions),
            done.length > 0 ? later({}, 'What they did', () => element('div', {class: 'sides facts'},
                SIDES.map((side) => element('div', {class: 'side', 'data-with': withSide(side)}, element('ul', {},
                    steps[side] ? steps[side].done.map((line) => element('li', {}, line)) : null))))) : null,
            rulesItems(data, cells, at)));
  };
  const summary = [
    element('span', {class: 'name'}, `${at + 1}. ${steps[there[0]].name}`),
    there.map((side) => element('span', {class: 'score'}, withSide(side) + ' ', scoreOf(data, steps[side]))),
  ];
  return later({class: 'step', open: there.some((side) => steps[side].verdict > 0)}, summary, make);
}

// ---- the panel ----

function reasonItem(reason) {
  const count = (side) => {
    const {checks, streams, errors} = reason[side];
    const parts = [[checks, 'check'], [streams, 'stream'], [errors, 'error']].filter(([number]) => number > 0);
    return element('td', {class: 'count' + (parts.length === 0 ? ' quiet' : ''), 'data-with': withSide(side)}, parts.length === 0 ? 'none' :
        parts.map(([number, word]) => element('span', {}, plural(number, word))));
  };
  const few = 4;
  return element('tr', {}, element('td', {}, mark(reason.state)), count('a'), count('b'),
      element('td', {class: 'reason'}, element('p', {}, reasonText(reason.because)),
          reason.harm.slice(0, few).map(({text, what}) => element('p', {class: 'harm'},
              what.slice(0, few).map((name, at) => [at > 0 ? ', ' : '', element('code', {}, name)]),
              what.length > few ? ` and ${what.length - few} more` : null, ': ' + text)),
          reason.harm.length > few ? element('p', {class: 'harm'}, `and in ${plural(reason.harm.length - few, 'other way')}: see the steps`) : null));
}

function reasonsTable(data, cells) {
  const reasons = reasonsOf(data, cells);
  if (reasons.length === 0) return null;
  return element('div', {class: 'scroll'}, element('table', {class: 'reasons'},
      element('caption', {}, 'What failed over all steps, and why'),
      element('thead', {}, element('tr', {}, ['', ...SIDES.map(withSide), 'why, and which packets'].map((name) =>
          element('th', {scope: 'col'}, name)))),
      element('tbody', {}, reasons.map(reasonItem))));
}

// The whole panel. `pair`: {a, b, compared, grid, row, column}, cells of `data` or null.
function cellPanel(data, pair, heading, close) {
  const cells = {a: pair.a, b: pair.b};
  const there = SIDES.filter((side) => cells[side]);
  const any = cells[there[0]];
  const {grid, compared} = pair;
  const steps = [...Array(Math.max(...there.map((side) => cells[side].steps.length))).keys()];
  const only = there.length === 1 ? `Only the node ${withSide(there[0])} was run; checks and streams not sound: ${total(any.notSound)}.` : null;
  return element('article', {class: 'panel', id: 'panel', tabindex: -1, 'aria-label': heading},
      element('button', {type: 'button', class: 'close', onclick: close, 'aria-label': 'close this cell'}, '\u00d7'),
      element('h3', {}, `kubelet ${grid.rows[pair.row]} with kube-proxy ${grid.columns[pair.column]}`),
      element('p', {class: 'where'}, `${grid.title} \u00b7 iptables ${grid.mode}`,
          any.allowed ? null : [' \u00b7 ', element('b', {}, 'the version skew policy does not allow the pair')]),
      any.about ? element('p', {class: 'about'}, 'Why this cell: ', any.about, '.') : null,
      element('p', {class: 'compared ' + (compared ? compared.better : '')}, compared ? compared.text : only),
      there.filter((side) => cells[side].verdict === 3).map((side) => element('p', {class: 'error s2'},
          `The node ${withSide(side)} could not be run: `, cells[side].problem || 'it has no checks and no streams.')),
      reasonsTable(data, cells), steps.map((at) => stepItem(data, cells, at)),
      element('footer', {class: 'quiet'},
          there.map((side) => element('p', {}, element('code', {}, cells[side].id),
              ` ${VERDICTS[cells[side].verdict]}, ${cells[side].seconds.toFixed(1)} s`))));
}
