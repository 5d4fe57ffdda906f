// SPDX-License-Identifier: Apache-2.0
//
// One cell, opened: its steps, with kubelet and with the agent side by side. `data` is what
// page_data.h describes. All text enters the page as text, never as markup.

const GLYPHS = ['\u2713', '~', '\u2717', '?'];
const VERDICTS = ['sound', 'known failure', 'unexpected', 'broken'];

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

function plural(count, word) {
  return count + ' ' + word + (count === 1 ? '' : 's');
}

function readCheck(data, index) {
  const row = data.checks[index];
  const text = (at) => data.strings[row[at] || 0];
  const [name, family, protocol, from, to, connections, kind] = data.probes[row[0] || 0];
  return {
    index, name, family, protocol, from, to, connections: Number(connections), kind,
    state: row[1] || 0, got: text(2), expected: text(3), sound: text(4), sent: row[5] || 0,
    received: row[6] || 0, receivers: text(7), seenSource: text(8), droppedBy: text(9),
    detail: text(10), because: text(11), complaint: text(12),
  };
}

function readStream(data, row) {
  const number = (at) => row[at] || 0;
  const text = (at) => data.strings[number(at)];
  const stream = {
    name: text(0), state: number(1), sent: number(2), served: number(3), masqueraded: number(4),
    reachedHost: number(5), forwarded: number(6), gap: number(7), rule: text(8), bad: number(9),
    allowed: number(10), because: text(11),
  };
  stream.lost = Math.max(0, stream.sent - stream.served - stream.masqueraded -
                                stream.reachedHost - stream.forwarded);
  return stream;
}

// What matters of a step's list of checks when cells are compared, once per list: cells share them.
const lists = new Map();
function summaryOf(data, list) {
  if (!lists.has(list)) {
    const checks = data.lists[list].map((index) => readCheck(data, index));
    lists.set(list, {
      notSound: checks.filter((check) => check.state > 0).length,
      shape: checks.map((check) => [check.name, check.state, check.got].join('|')).join('\n'),
    });
  }
  return lists.get(list);
}

// The number of checks and of streams that are not sound.
function notSound(data, cell) {
  const count = {checks: 0, streams: 0};
  for (const step of cell.steps) {
    count.checks += summaryOf(data, step.checks).notSound;
    count.streams += step.streams.filter((row) => (row[1] || 0) > 0).length;
  }
  return count;
}

// {different, better: 'kubelet' | 'agent' | '', text}, or null where only one of them was run.
function compare(data, kubelet, agent) {
  if (!kubelet || !agent) return null;
  const ours = notSound(data, agent);
  const theirs = notSound(data, kubelet);
  const shape = (cell) => cell.steps.map((step) =>
      step.verdict + summaryOf(data, step.checks).shape).join('\n\n');
  const of = (count) => plural(count.checks, 'check') +
      (count.streams > 0 ? ' and ' + plural(count.streams, 'stream') : '') + ' not sound';
  const numbers = `kubelet ${of(theirs)}, agent ${of(ours)}.`;
  if (kubelet.verdict === 3 || agent.verdict === 3) {
    const broken = kubelet.verdict === agent.verdict ? 'Neither' :
        kubelet.verdict === 3 ? 'The one with kubelet' : 'The one with the agent';
    return {
      different: kubelet.verdict !== agent.verdict, better: '',
      text: broken === 'Neither' ? 'Neither could be run.' : broken + ' could not be run; nothing is compared.',
    };
  }
  const difference = theirs.checks + theirs.streams - ours.checks - ours.streams;
  if (difference > 0) return {different: true, better: 'agent', text: 'The agent is better: ' + numbers};
  if (difference < 0) return {different: true, better: 'kubelet', text: 'kubelet is better: ' + numbers};
  const different = kubelet.verdict !== agent.verdict || shape(kubelet) !== shape(agent);
  return {
    different, better: '',
    text: different ? 'They differ, and neither has more that is sound: ' + numbers :
        'No difference: ' + numbers,
  };
}

// What a check says, beside the same check with the other actor at this step.
function checkItem(check, other, otherName) {
  const says = [element('b', {}, check.got)];
  if (check.got !== check.sound) says.push(' instead of ', element('b', {}, check.sound));
  if (check.expected !== check.got && check.expected !== check.sound) {
    says.push(', expected here: ', element('b', {}, check.expected));
  }
  const facts = [
    `${check.from} \u2192 ${check.to}, ${check.protocol} ${check.family}` +
        (check.kind === 'martian' ? ', martian' : '') +
        (check.connections > 1 ? `, ${check.connections} connections` : ''),
    `sent ${check.sent}, received ${check.received}` + (check.receivers ? ' (' + check.receivers + ')' : ''),
    check.seenSource && 'seen from ' + check.seenSource,
    check.detail,
  ].filter(Boolean).join('; ');
  const differs = other && (other.state !== check.state || other.got !== check.got);
  return element('li', {class: 'check s' + check.state},
      element('p', {}, mark(check.state), ' ', element('code', {}, check.name), ' ', says,
          check.complaint ? element('span', {class: 'complaint'}, ': ' + check.complaint) : null,
          differs ? [' ', element('span', {class: 'other'}, `with ${otherName}: ${GLYPHS[other.state]} ${other.got}`)] : null),
      element('p', {class: 'facts'}, facts),
      check.droppedBy ? element('p', {class: 'facts'}, 'dropped by ', element('code', {}, check.droppedBy)) : null);
}

// One fact often explains many checks: it stands above them, once.
function checkLists(checks, item) {
  const reasons = [...new Set(checks.map((check) => check.because))];
  return reasons.map((because) => [
    because ? element('p', {class: 'because'}, because + ':') : null,
    element('ul', {class: 'checks'}, checks.filter((check) => check.because === because).map(item)),
  ]);
}

// A list that is made when it is first opened: a page with all of them at once would be slow.
function later(summary, make, open) {
  const details = element('details', {open}, element('summary', {}, summary));
  let made = false;
  const fill = () => {
    if (!made && details.open) details.append(make());
    made = made || details.open;
  };
  details.addEventListener('toggle', fill);
  fill();
  return details;
}

function checksOf(data, step, otherStep, otherName) {
  const others = new Map(otherStep ? data.lists[otherStep.checks].map((index) => {
    const check = readCheck(data, index);
    return [check.name, check];
  }) : []);
  const checks = data.lists[step.checks].map((index) => readCheck(data, index));
  const item = (check) => checkItem(check, others.get(check.name), otherName);
  const bad = checks.filter((check) => check.state > 0).sort((a, b) => b.state - a.state);
  const sound = checks.filter((check) => check.state === 0);
  // Sound here and not there is worth a look as well: those come first.
  const worth = (check) => (others.get(check.name)?.state || 0) > 0 ? 0 : 1;
  sound.sort((a, b) => worth(a) - worth(b));
  const list = (some) => element('div', {}, checkLists(some, item));
  const few = 12;
  return [
    checkLists(bad.slice(0, few), item),
    bad.length > few ? later(plural(bad.length - few, 'more check') + ' not sound', () => list(bad.slice(few))) : null,
    sound.length > 0 ? later(plural(sound.length, 'sound check'), () => list(sound)) : null,
    checks.length === 0 ? element('p', {class: 'quiet'}, 'Nothing was asked at this step.') : null,
  ];
}

function streamsOf(data, step) {
  if (step.streams.length === 0) return null;
  const streams = step.streams.map((row) => readStream(data, row)).sort((a, b) => b.state - a.state);
  const head = [
    ['', ''], ['stream', ''], ['sent', ''], ['served', 'with the caller\u2019s own address'],
    ['masq.', 'served, with an address of the node'], ['host', 'reached a program on the node'],
    ['fwd.', 'reached the next hop'], ['nobody', 'received by nobody: lost, or dropped'],
    ['gap', 'the longest run of packets of which none was served'],
  ];
  const rows = streams.map((stream) => [
    element('tr', {class: 's' + stream.state}, element('td', {}, mark(stream.state)),
        element('td', {}, element('code', {}, stream.name)),
        [stream.sent, stream.served, stream.masqueraded, stream.reachedHost, stream.forwarded,
          stream.lost, stream.gap].map((count) => element('td', {class: 'number'}, String(count)))),
    element('tr', {class: 'rule s' + stream.state}, element('td', {}),
        element('td', {colspan: 8}, stream.rule + ': ' +
            (stream.bad > 0 ? `broken by ${stream.bad} of ${plural(stream.sent, 'packet')}` : 'kept') +
            (stream.allowed > 0 ? `, up to ${stream.allowed} expected` : '') +
            (stream.because ? '. ' + stream.because : ''))),
  ]);
  const bad = streams.filter((stream) => stream.state > 0).length;
  return later(`${plural(streams.length, 'stream')} during this step` + (bad > 0 ? `, ${bad} not sound` : ''),
      () => element('div', {class: 'scroll'}, element('table', {class: 'streams'},
          element('thead', {}, element('tr', {}, head.map(([name, title]) => element('th', {scope: 'col', title}, name)))),
          element('tbody', {}, rows))),
      bad > 0);
}

function rulesOf(data, cell, step) {
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
  if (diff.added + diff.removed === 0 && after.length === 0) return null;
  const counts = diff.added + diff.removed === 0 ? 'no change' : `+${diff.added} \u2212${diff.removed} lines`;
  return later(`${label}: ${counts}`, () => {
    const box = element('div', {});
    const whole = element('input', {type: 'checkbox'});
    const draw = () => box.lastChild.replaceWith(diffView(diff, whole.checked));
    whole.addEventListener('change', draw);
    box.append(element('label', {class: 'whole'}, whole, ' unchanged lines too'), diffView(diff, false));
    return box;
  });
}

function stepOf(data, cell, at, other, otherName) {
  const step = cell && cell.steps[at];
  if (!step) return element('div', {class: 'side none'}, cell ? 'This step was not reached.' : 'Not run.');
  const before = at > 0 ? rulesOf(data, cell, cell.steps[at - 1]) : [];
  const error = step.errorState === 0 ? null :
      element('div', {class: 'error s' + step.errorState}, mark(step.errorState), ' ',
          step.errorState === 1 ? 'It failed, as expected: ' : 'It failed: ',
          element('code', {}, step.error),
          step.errorBecause ? element('p', {class: 'because'}, step.errorBecause) : null);
  return element('div', {class: 'side'},
      element('p', {class: 'verdict'}, mark(step.verdict), ' ', VERDICTS[step.verdict]),
      step.done.length > 0 ? element('p', {class: 'done'}, step.done.join('; ')) : null,
      error, checksOf(data, step, other && other.steps[at], otherName), streamsOf(data, step),
      diffOf('Rules before and after', before, rulesOf(data, cell, step)));
}

// The whole panel. `pair`: {kubelet, agent}, cells of `data` or null.
function cellPanel(data, pair, heading, close) {
  const {kubelet, agent} = pair;
  const any = kubelet || agent;
  const compared = compare(data, kubelet, agent);
  const count = Math.max(...[kubelet, agent].map((cell) => cell ? cell.steps.length : 0));
  const steps = [];
  for (let at = 0; at < count; ++at) {
    const names = [kubelet, agent].map((cell) => cell && cell.steps[at] ? cell.steps[at].name : '');
    steps.push(element('section', {class: 'step'},
        element('h4', {}, `${at + 1}. ${names[0] || names[1]}`),
        element('div', {class: 'sides'}, stepOf(data, kubelet, at, agent, 'the agent'),
            stepOf(data, agent, at, kubelet, 'kubelet')),
        names[0] && names[1] ? diffOf('Rules with kubelet, and with the agent',
            rulesOf(data, kubelet, kubelet.steps[at]), rulesOf(data, agent, agent.steps[at])) : null));
  }
  const title = (cell, name) => element('div', {class: 'actor'}, element('h4', {}, name),
      cell ? element('p', {}, mark(cell.verdict), ' ', element('b', {}, VERDICTS[cell.verdict]),
          `, ${cell.seconds.toFixed(1)} s`) : element('p', {}, 'not run'),
      cell && cell.verdict === 3 ?
          element('p', {class: 'error s2'}, cell.problem || 'It asked nothing.') : null,
      cell ? element('p', {class: 'id'}, element('code', {}, cell.id)) : null);
  return element('article', {class: 'panel', id: 'panel', tabindex: -1, 'aria-label': heading},
      element('button', {type: 'button', class: 'close', onclick: close, 'aria-label': 'close this cell'}, '\u00d7'),
      element('h3', {}, heading),
      compared ? element('p', {class: 'compared ' + compared.better}, compared.text) : null,
      any.about ? element('p', {class: 'about'}, any.about) : null,
      element('p', {class: 'stands'}, any.allowed ? 'The version skew policy allows the pair. ' :
          'The version skew policy does not allow the pair. ',
          any.standsFor.length > 0 ? 'Stands for ' + any.standsFor.join('; ') + '.' : null),
      element('div', {class: 'sides titles'}, title(kubelet, 'kubelet'), title(agent, 'kube-iptables-agent')),
      steps);
}

