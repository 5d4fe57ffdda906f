// SPDX-License-Identifier: Apache-2.0
//
// Rulesets and their differences, line by line and table by table. Nothing here touches the page.
'use strict';

// Lines of iptables-save, cut into tables: [{title: 'IPv4, nft: nat', lines: [...]}]. "# IPv4, nft" above
// tables says whose they are.
function tablesOf(lines) {
  const tables = [];
  let whose = '';
  let table = null;
  for (const line of lines) {
    if (line.startsWith('#')) {
      whose = line.slice(1).trim() + ': ';
      table = null;
    } else if (line.startsWith('*')) {
      table = {title: whose + line.slice(1), lines: []};
      tables.push(table);
    } else if (line === 'COMMIT') {
      table = null;
    } else {
      if (table === null) {
        table = {title: whose + 'outside of tables', lines: []};
        tables.push(table);
      }
      table.lines.push(line);
    }
  }
  return tables;
}

// [{sign: '+' | '-' | ' ', line}]: the longest common subsequence stays.
function diffLines(before, after) {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) ++head;
  let tail = 0;
  while (tail < before.length - head && tail < after.length - head &&
         before[before.length - 1 - tail] === after[after.length - 1 - tail]) ++tail;
  const a = before.slice(head, before.length - tail);
  const b = after.slice(head, after.length - tail);
  const width = b.length + 1;
  // length[i * width + j]: of the longest common subsequence of a from i on and b from j on.
  const length = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; --i) {
    for (let j = b.length - 1; j >= 0; --j) {
      length[i * width + j] = a[i] === b[j] ? length[(i + 1) * width + j + 1] + 1 :
          Math.max(length[(i + 1) * width + j], length[i * width + j + 1]);
    }
  }
  const diff = before.slice(0, head).map((line) => ({sign: ' ', line}));
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      diff.push({sign: ' ', line: a[i]});
      ++i;
      ++j;
    } else if (j === b.length ||
               (i < a.length && length[(i + 1) * width + j] >= length[i * width + j + 1])) {
      diff.push({sign: '-', line: a[i++]});
    } else {
      diff.push({sign: '+', line: b[j++]});
    }
  }
  for (const line of before.slice(before.length - tail)) diff.push({sign: ' ', line});
  return diff;
}

// Of two rulesets: {added, removed, tables: [{title, diff, changed}]}, in the order of `after`, what
// only `before` has at the end.
function diffRules(before, after) {
  const old = new Map(tablesOf(before).map((table) => [table.title, table.lines]));
  const result = {added: 0, removed: 0, tables: []};
  const add = (title, diff) => {
    const added = diff.filter((one) => one.sign === '+').length;
    const removed = diff.filter((one) => one.sign === '-').length;
    result.added += added;
    result.removed += removed;
    result.tables.push({title, diff, changed: added + removed > 0});
  };
  for (const table of tablesOf(after)) {
    add(table.title, diffLines(old.get(table.title) || [], table.lines));
    old.delete(table.title);
  }
  for (const [title, lines] of old) add(title, diffLines(lines, []));
  return result;
}

