// SPDX-License-Identifier: Apache-2.0
//
// Usage: node page_in_node.js PAGE [CELL]
//
// Runs the script of a page of `kube-iptables-skew --html` on a document that has as much of a browser's
// as the script asks for, opens CELL, unfolds all that can be, and filters. Prints as JSON what is drawn.
'use strict';
const fs = require('fs');
const vm = require('vm');

class Node {
  constructor(name, attributes = {}) {
    this.name = name;
    this.attributes = {...attributes};
    this.children = [];
    this.parentElement = null;
    this.listeners = {};
    this.hidden = 'hidden' in attributes;
    this.disabled = false;
    this.value = attributes.value || '';
    this.checked = 'checked' in attributes;
    this.style = {};
    const data = (key) => 'data-' + key.replace(/[A-Z]/g, (letter) => '-' + letter.toLowerCase());
    this.dataset = new Proxy({}, {get: (_, key) => this.attributes[data(key)]});
  }
  append(...children) {
    for (const child of children.flat(Infinity)) {
      if (child instanceof Node) child.parentElement = this;
      this.children.push(child instanceof Node ? child : String(child));
    }
  }
  setAttribute(key, value) {
    this.attributes[key] = String(value);
    if (key === 'checked') this.checked = true;
    if (key === 'value') this.value = String(value);
  }
  addEventListener(type, listener) { (this.listeners[type] ||= []).push(listener); }
  fire(type, more = {}) {
    const event = {type, target: this, currentTarget: this, preventDefault() {}, ...more};
    for (const listener of this.listeners[type] || []) listener(event);
  }
  get open() { return 'open' in this.attributes; }
  get textContent() {
    return this.children.map((child) => child instanceof Node ? child.textContent : child).join('');
  }
  set textContent(text) { this.children = [String(text)]; }
  get lastChild() { return this.children[this.children.length - 1]; }
  remove() {
    if (this.parentElement) this.replaceWith();
  }
  replaceWith(...nodes) {
    const {children} = this.parentElement;
    children.splice(children.indexOf(this), 1, ...nodes);
    for (const node of nodes) node.parentElement = this.parentElement;
    this.parentElement = null;
  }
  all(test) {
    const inner = this.children.filter((child) => child instanceof Node);
    return [...inner.filter(test), ...inner.flatMap((child) => child.all(test))];
  }
  has(word) { return (this.attributes.class || '').split(' ').includes(word); }
  get cells() { return this.children.filter((child) => ['td', 'th'].includes(child.name)); }
  get rows() { return this.all((node) => node.name === 'tr'); }
  get tBodies() { return this.all((node) => node.name === 'tbody'); }
  querySelector(selector) {
    if (selector !== 'button:not(:disabled)') throw new Error('unknown selector ' + selector);
    return this.all((node) => node.name === 'button' && !node.disabled)[0] || null;
  }
  reset() {
    for (const node of this.all((one) => one.name === 'input')) node.checked = false;
  }
  focus() {}
  scrollIntoView() {}
}

const page = fs.readFileSync(process.argv[2], 'utf8');
const body = new Node('body');
// Elements that the page has before its script runs, flat.
for (const [, name, text] of page.slice(page.indexOf('<body>')).matchAll(/<([a-z0-9]+)((?:\s[^<>]*)?)>/g)) {
  const attributes = Object.fromEntries(
      [...text.matchAll(/([a-z-]+)(?:="([^"]*)")?/g)].map(([, key, value]) => [key, value || '']));
  if (attributes.id || attributes['data-name']) body.append(new Node(name, attributes));
}
const byId = (id) => body.all((node) => node.attributes.id === id)[0] || null;
const between = (from, to) => page.slice(page.indexOf(from) + from.length, page.indexOf(to, page.indexOf(from)));
byId('data').textContent = between('<script type="application/json" id="data">', '</script>');

const window = new Node('window');
const document = new Node('document');
Object.assign(document, {
  getElementById: byId,
  createElement: (name) => new Node(name),
  querySelectorAll: (selector) => {
    if (selector !== '[data-name]') throw new Error('unknown selector ' + selector);
    return body.all((node) => 'data-name' in node.attributes);
  },
});
const location = {hash: process.argv[3] ? '#' + encodeURI(process.argv[3]) : '', pathname: '/page', search: ''};
const history = {scrollRestoration: 'auto', replaceState: () => { location.hash = ''; }};
vm.runInNewContext(between('<script>\n', '</script>'),
    {window, document, location, history, console, decodeURIComponent, encodeURI});
window.fire('load');

function unfold() {
  for (let closed = []; ;) {
    closed = body.all((node) => node.name === 'details' && !node.open);
    if (closed.length === 0) return;
    for (const details of closed) {
      details.setAttribute('open', '');
      details.fire('toggle');
    }
  }
}
unfold();
for (const whole of body.all((node) => node.name === 'input' && node.parentElement.has('whole'))) {
  whole.checked = !whole.checked;
  whole.fire('change');
}
const halves = () => body.all((node) => node.has('half') && /\bv[0-3]\b/.test(node.attributes.class));
const drawn = {
  halves: halves().length,
  machine: byId('machine').textContent,
  names: body.all((node) => 'data-name' in node.attributes).map((node) => node.textContent),
  problems: byId('problems').textContent,
  panel: byId('panel') && byId('panel').textContent,
  sides: byId('panel') && [...new Set(byId('panel').all((node) => node.has('side'))
      .map((node) => node.attributes['data-with']))],
  shown: byId('shown').textContent,
};
if (byId('panel')) body.all((node) => node.has('close'))[0].fire('click');
drawn.closed = byId('panel') === null;
for (const id of ['only-unexpected', 'only-different']) {
  byId('only-unexpected').checked = byId('only-different').checked = false;
  byId(id).checked = true;
  byId('filters').fire('input');
  drawn[id] = byId('shown').textContent;
}
console.log(JSON.stringify(drawn));
