// SPDX-License-Identifier: Apache-2.0
//
// What report_parts.h describes, as values, and cells next to each other. Nothing here touches the page.

const GLYPHS = ['\u2713', '~', '\u2717', '?'];
const VERDICTS = ['sound', 'known failure', 'unexpected', 'broken'];
const SIDES = ['a', 'b'];
// What the sides are called: 'kubelet', 'agent'. The page's data says it.
const NAMES = {a: 'A', b: 'B'};

function withSide(side) {
  return 'with ' + NAMES[side];
}

function plural(count, word) {
  return count + ' ' + word + (count === 1 ? '' : 's');
}

function readCheck(data, index) {
  const row = data.checks[index];
  const text = (at) => data.strings[row[at] || 0];
  const [name, family, protocol, from, to, connections, kind] = data.probes[row[0] || 0];
  return {
    name, family, protocol, from, to, connections: Number(connections), kind,
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
    reachedHost: number(5), forwarded: number(6), other: number(7), gap: number(8), sound: text(9),
    bad: number(10), allowed: number(11), because: text(12),
  };
  stream.nobody = Math.max(0, stream.sent - stream.served - stream.masqueraded -
                                stream.reachedHost - stream.forwarded - stream.other);
  return stream;
}

// Cells share lists of checks, so each list is read once.
const lists = new Map();
function checksOf(data, step) {
  if (!lists.has(step.checks)) {
    lists.set(step.checks, data.lists[step.checks].map((index) => readCheck(data, index)));
  }
  return lists.get(step.checks);
}

function streamsOf(data, step) {
  return step.streams.map((row) => readStream(data, row));
}

function total(count) {
  return count.checks + count.streams;
}

// "34 not sound (32 checks, 2 streams)", "none".
function notSoundText(count) {
  if (total(count) === 0) return 'none';
  if (count.streams === 0) return plural(count.checks, 'check') + ' not sound';
  if (count.checks === 0) return plural(count.streams, 'stream') + ' not sound';
  return `${total(count)} not sound (${plural(count.checks, 'check')}, ${plural(count.streams, 'stream')})`;
}

function stepNotSound(data, step) {
  const bad = (items) => items.filter((item) => item.state > 0).length;
  return {checks: bad(checksOf(data, step)), streams: bad(streamsOf(data, step))};
}

// {different, better: 'a' | 'b' | '', text}, or null where only one of them was run.
function compare(data, a, b) {
  if (!a || !b) return null;
  if (a.verdict === 3 || b.verdict === 3) {
    if (a.verdict === b.verdict) return {different: false, better: '', text: 'Neither could be run.'};
    const broken = 'The node ' + withSide(a.verdict === 3 ? 'a' : 'b');
    return {different: true, better: '', text: broken + ' could not be run; nothing is compared.'};
  }
  const numbers = `${withSide('a')} ${notSoundText(a.notSound)}, ${withSide('b')} ${notSoundText(b.notSound)}.`;
  const fewer = total(a.notSound) - total(b.notSound);
  if (fewer > 0) return {different: true, better: 'b', text: NAMES.b + ' is better: ' + numbers};
  if (fewer < 0) return {different: true, better: 'a', text: NAMES.a + ' is better: ' + numbers};
  const shape = (cell) => cell.steps.map((step) => step.verdict + checksOf(data, step).map((check) =>
      [check.name, check.state, check.got].join('|')).join('\n')).join('\n\n');
  if (a.verdict !== b.verdict || shape(a) !== shape(b)) {
    return {different: true, better: '', text: 'They differ, and neither has more that is sound: ' + numbers};
  }
  if (a.verdict === 0) return {different: false, better: '', text: 'Both are sound: every packet did what it does on a sound node.'};
  return {different: false, better: '', text: `No difference: ${notSoundText(a.notSound)}, with either.`};
}

// Why an item failed: its fact, '' where there is none, null where it did not fail.
function reasonOf(item) {
  return item && item.state > 0 ? item.because : null;
}

// What was asked at a step of both sides: [{name, a: item or null, b: item or null}].
function sideBySide(items) {
  const rows = new Map();
  for (const side of SIDES) {
    for (const item of items[side]) {
      if (!rows.has(item.name)) rows.set(item.name, {name: item.name, a: null, b: null});
      rows.get(item.name)[side] = item;
    }
  }
  return [...rows.values()];
}

function worst(row) {
  return Math.max(...SIDES.map((side) => row[side] ? row[side].state : 0));
}

// Questions that differ only in protocol and family, and were answered alike, make one row:
// [{what, state, names: [...], of: [{name, a, b}]}], in the order of their first.
function rowsOf(questions) {
  const rows = new Map();
  for (const question of questions) {
    const what = question.name.split('/')[0];
    const isStream = (question.a || question.b).gap !== undefined;
    const key = [isStream ? question.name : what, ...SIDES.map((side) => {
      const item = question[side];
      return item ? [item.state, item.got, item.expected, item.sound, item.complaint].join('|') : '';
    })].join('\n');
    if (!rows.has(key)) rows.set(key, {what, isStream, state: worst(question), of: []});
    rows.get(key).of.push(question);
  }
  return [...rows.values()];
}

// All that failed at a step, under the reasons for it: [{reasons: {a, b}, state, rows}].
// What failed on one side only is listed under that side's reason.
function groupsOf(questions) {
  const groups = new Map();
  for (const question of questions.filter((one) => worst(one) > 0)) {
    const a = reasonOf(question.a);
    const b = reasonOf(question.b);
    const one = a === null ? b : b === null || a === b ? a : null;
    const key = one === null ? a + '\n' + b : one;
    if (!groups.has(key)) {
      groups.set(key, {
        reasons: one === null ? {a, b} : {a: one, b: one}, state: 0, questions: [],
      });
    }
    const group = groups.get(key);
    group.state = Math.max(group.state, worst(question));
    group.questions.push(question);
  }
  return [...groups.values()].sort((a, b) => b.state - a.state)
      .map((group) => ({...group, rows: rowsOf(group.questions).sort((a, b) => b.state - a.state)}));
}

// "tcp, udp; ipv4, ipv6" of names "x/tcp/ipv4", "x/udp/ipv6", ..., or each of them if not all are there.
function variantsOf(names) {
  const parts = names.map((name) => name.split('/').slice(1));
  const values = parts[0].map((_, at) => [...new Set(parts.map((part) => part[at]))]);
  const all = values.reduce((count, some) => count * some.length, 1);
  return all === names.length ? values.map((some) => some.join(', ')).join('; ') :
      parts.map((part) => part.join(' ')).join(', ');
}

// Over all steps: [{because, state, a: count, b: count, harm: [{text, what: [...]}]}], where
// a count is {checks, streams, errors}. Unexpected ones first, then those in which the sides differ.
function reasonsOf(data, cells) {
  const reasons = new Map();
  const at = (because, state) => {
    const none = () => ({checks: 0, streams: 0, errors: 0});
    if (!reasons.has(because)) reasons.set(because, {because, state: 0, a: none(), b: none(), harm: new Map()});
    const reason = reasons.get(because);
    reason.state = Math.max(reason.state, state);
    return reason;
  };
  const harm = (reason, text, what) => {
    if (!reason.harm.has(text)) reason.harm.set(text, new Set());
    reason.harm.get(text).add(what);
  };
  for (const side of SIDES) {
    for (const step of cells[side] ? cells[side].steps : []) {
      for (const check of checksOf(data, step).filter((one) => one.state > 0)) {
        const reason = at(check.because, check.state);
        ++reason[side].checks;
        harm(reason, check.got === check.sound ? check.got + ', but not as it should be' :
            `${check.got} instead of ${check.sound}`, check.name.split('/')[0]);
      }
      for (const stream of streamsOf(data, step).filter((one) => one.state > 0)) {
        const reason = at(stream.because, stream.state);
        ++reason[side].streams;
        harm(reason, `broke the rule \u201c${stream.sound}\u201d`, stream.name.split('/')[0]);
      }
      if (step.errorState > 0) ++at(step.errorBecause, step.errorState)[side].errors;
    }
  }
  const sum = (count) => count.checks + count.streams + count.errors;
  const differs = (reason) => sum(reason.a) === sum(reason.b) ? 0 : 1;
  return [...reasons.values()].sort((a, b) => b.state - a.state || differs(b) - differs(a))
      .map((reason) => ({...reason, harm: [...reason.harm].map(([text, what]) => ({text, what: [...what]}))}));
}
