// SPDX-License-Identifier: Apache-2.0
//
// The matrix itself: tables, filters, which cell is open. The last of the page's scripts; it starts.

const data = JSON.parse(document.getElementById('data').textContent);
// Everything that can be chosen: {grid, row, column, a, b, compared, button}.
const pairs = [];
let opened = null;
for (const side of SIDES) NAMES[side] = data[side].name;

function cellsOf(pair) {
  return [pair.a, pair.b].filter((cell) => cell !== null);
}

function describe(pair) {
  const {grid} = pair;
  return `kubelet ${grid.rows[pair.row]}, kube-proxy ${grid.columns[pair.column]}, ${grid.title}, iptables ${grid.mode}`;
}

function drawHeader() {
  for (const place of document.querySelectorAll('[data-name]')) place.textContent = NAMES[place.dataset.name];
  document.getElementById('machine').textContent = [
    'Linux ' + data.kernel, 'iptables ' + data.iptables, ...SIDES.map((side) =>
        `${side.toUpperCase()}, ${data[side].name}: ${data[side].what}`),
    plural(data.cells.length, 'cell') + ' in ' + data.duration,
    `compared: ${plural(data.compared[0], 'cell')}, ` +
        `${plural(data.compared[1], 'check')}, ${plural(data.compared[2], 'stream')}`,
  ].join(' \u00b7 ');
  document.getElementById('totals').append(...data.tally.map((count, verdict) =>
      element('div', {class: 'total' + (count === 0 ? ' zero' : '')}, mark(verdict),
          element('b', {}, String(count)), VERDICTS[verdict])));
  const problems = document.getElementById('problems');
  problems.hidden = data.problems.length === 0;
  problems.append(element('h2', {}, 'Wrong with the matrix as a whole'),
      element('ul', {}, data.problems.map((problem) => element('li', {}, problem))));
}

// Beside the glyph: how many of its checks and streams were not sound.
function half(cell, fewer) {
  if (cell === null) return element('span', {class: 'half none'}, '\u00b7');
  const count = total(cell.notSound);
  return element('span', {class: 'half v' + cell.verdict + (fewer ? ' fewer' : '')}, GLYPHS[cell.verdict],
      cell.verdict < 3 && count > 0 ? element('small', {class: count > 99 ? 'long' : null}, String(count)) : null);
}

function drawPair(pair) {
  const {better} = pair.compared || {better: ''};
  const says = (side) => {
    const cell = pair[side];
    if (cell === null) return NAMES[side] + ' not run';
    const count = cell.verdict < 3 && total(cell.notSound) > 0 ? `, ${notSoundText(cell.notSound)}` : '';
    return `${NAMES[side]} ${VERDICTS[cell.verdict]}${count}${better === side ? ', which is fewer' : ''}`;
  };
  const allowed = cellsOf(pair)[0].allowed;
  const label = `${describe(pair)}: ${says('a')}; ${says('b')}` +
      (allowed ? '' : '; the version skew policy does not allow it');
  pair.button = element('button', {
    type: 'button', class: 'pair' + (allowed ? '' : ' forbidden'), 'aria-label': label, title: label,
    'aria-expanded': 'false', 'data-row': pair.row, 'data-column': pair.column,
    onclick: () => { opened === pair ? close() : select(pair); },
  }, SIDES.map((side) => half(pair[side], better === side)));
  return pair.button;
}

// "1.31 nftables" with the kind below, or next to, the version.
function generation(name) {
  const [version, ...kind] = name.split(' ');
  return [version, kind.length > 0 ? element('small', {}, kind.join(' ')) : null];
}

function drawGrid(grid) {
  const at = new Map();
  for (const [row, column, a, b] of grid.pairs) {
    const cell = (index) => index < 0 ? null : data.cells[index];
    const pair = {grid, row, column, a: cell(a), b: cell(b)};
    pair.compared = compare(data, pair.a, pair.b);
    pairs.push(pair);
    at.set(row + ' ' + column, pair);
  }
  const corner = element('th', {class: 'corner'}, element('small', {}, 'proxy \u2192'), 'kubelet \u2193');
  const head = element('tr', {}, corner,
      grid.columns.map((name) => element('th', {scope: 'col'}, generation(name))));
  const rows = grid.rows.map((name, row) => element('tr', {}, element('th', {scope: 'row'}, generation(name)),
      grid.columns.map((_, column) => {
        const pair = at.get(row + ' ' + column);
        return element('td', {}, pair ? drawPair(pair) : element('span', {class: 'gap'}));
      })));
  grid.table = element('table', {class: 'grid'}, element('caption', {}, 'iptables ' + grid.mode),
      element('thead', {}, head), element('tbody', {}, rows));
  grid.table.addEventListener('keydown', moveFocus);
  return element('div', {class: 'scroll'}, grid.table);
}

// One section per path, with a table per mode, and a place for the cell that is opened.
function drawMatrix() {
  const titles = [...new Set(data.grids.map((grid) => grid.title))];
  for (const title of titles) {
    const grids = data.grids.filter((grid) => grid.title === title);
    const place = element('div', {class: 'place'});
    const section = element('section', {class: 'path'}, element('h2', {}, title),
        element('div', {class: 'grids'}, grids.map(drawGrid)));
    for (const grid of grids) Object.assign(grid, {section, place});
    // Small tables share a line; a cell that is opened takes a whole one.
    document.getElementById('matrix').append(section, place);
  }
  const option = (name) => element('option', {value: name}, name);
  document.getElementById('path').append(...titles.map(option));
  document.getElementById('mode').append(...[...new Set(data.grids.map((grid) => grid.mode))].map(option));
}

// Arrow keys go from cell to cell, over gaps.
function moveFocus(event) {
  const steps = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
  const step = steps[event.key];
  if (!step || !event.target.dataset.row) return;
  event.preventDefault();
  let row = Number(event.target.dataset.row);
  let column = Number(event.target.dataset.column);
  const {rows} = event.currentTarget.tBodies[0];
  for (;;) {
    row += step[0];
    column += step[1];
    if (row < 0 || row >= rows.length || column < 0 || column + 1 >= rows[row].cells.length) return;
    const button = rows[row].cells[column + 1].querySelector('button:not(:disabled)');
    if (button) return button.focus();
  }
}

function open(pair) {
  if (opened) opened.button.setAttribute('aria-expanded', 'false');
  document.getElementById('panel')?.remove();
  opened = pair;
  if (!pair) return;
  pair.button.setAttribute('aria-expanded', 'true');
  const panel = cellPanel(data, pair, describe(pair), close);
  pair.grid.place.append(panel);
  panel.focus({preventScroll: true});
  showPanel();
}

function showPanel() {
  document.getElementById('panel')?.scrollIntoView({block: 'start'});
}

// The address names the open cell, so that a link to it can be sent.
function select(pair) {
  const hash = '#' + encodeURI(cellsOf(pair)[0].id);
  if (location.hash === hash) open(pair);
  else location.hash = hash;
}

function close() {
  const {button} = opened;
  history.replaceState(null, '', location.pathname + location.search);
  open(null);
  button.focus();
}

function openFromAddress() {
  let id = location.hash.slice(1);
  try {
    id = decodeURIComponent(id);
  } catch {
    // Somebody typed a lone %: it is no cell's id either way.
  }
  const pair = pairs.find((one) => cellsOf(one).some((cell) => cell.id === id));
  if (pair && pair.button.disabled) {
    document.getElementById('filters').reset();
    filter();
  }
  if (pair || opened) open(pair || null);
}

function filter() {
  const wanted = {
    unexpected: document.getElementById('only-unexpected').checked,
    different: document.getElementById('only-different').checked,
    path: document.getElementById('path').value,
    mode: document.getElementById('mode').value,
  };
  for (const grid of data.grids) grid.shown = {count: 0, rows: new Set(), columns: new Set()};
  for (const pair of pairs) {
    const fits = (!wanted.unexpected || cellsOf(pair).some((cell) => cell.verdict >= 2)) &&
        (!wanted.different || (pair.compared !== null && pair.compared.different)) &&
        (!wanted.path || pair.grid.title === wanted.path) &&
        (!wanted.mode || pair.grid.mode === wanted.mode);
    pair.button.disabled = !fits;
    if (!fits && opened === pair) open(null);
    if (!fits) continue;
    ++pair.grid.shown.count;
    pair.grid.shown.rows.add(pair.row);
    pair.grid.shown.columns.add(pair.column);
  }
  for (const grid of data.grids) {
    const {count, rows, columns} = grid.shown;
    grid.table.parentElement.hidden = count === 0;
    // A row or a column of which nothing is left takes no room.
    for (const tr of grid.table.rows) {
      [...tr.cells].forEach((cell, at) => { cell.hidden = at > 0 && !columns.has(at - 1); });
    }
    [...grid.table.tBodies[0].rows].forEach((tr, at) => { tr.hidden = !rows.has(at); });
    grid.section.hidden = data.grids.every((one) => one.section !== grid.section || one.shown.count === 0);
  }
  const shown = data.grids.reduce((sum, grid) => sum + grid.shown.count, 0);
  document.getElementById('shown').textContent = `${shown} of ${plural(pairs.length, 'pair')} shown`;
}

drawHeader();
drawMatrix();
document.getElementById('filters').addEventListener('input', filter);
document.getElementById('filters').addEventListener('submit', (event) => event.preventDefault());
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && opened) close();
});
window.addEventListener('hashchange', openFromAddress);
// What the address names is to be seen, not what was when the page was left.
history.scrollRestoration = 'manual';
window.addEventListener('load', showPanel);
filter();
openFromAddress();
