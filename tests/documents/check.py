#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Usage: tests/documents/check.py [--links] [--root DIR] [DOCUMENT...]
#        tests/documents/check.py --list
#
# Reads the documents (default: every *.md of the sources that a person wrote) and reports, one line each:
#
#   link      a link that is not relative, or to a file or heading that does not exist
#   evidence  a file or test in `...` that does not exist
#   command   a command of this project in a block that tests/documents/run does not see: indented, or not ```sh
#   step      a numbered step that does not follow the one before
#   figure    a figure or version in a table that is not in the report to which its row links
#   word      a word or phrase of the table WORDS
#   sentence  a sentence of more than 30 words
#   stamp     a report that a tool wrote names a commit that is not in this history, and does not report that
#   length    README.md of more than 180 lines, or without its two commands first
#
# Code blocks, quoted output and text in `...` are not read for words and sentences. Reports that tools write
# are checked for links and stamps only, CHANGELOG.md in "Unreleased" and the three newest versions. --links checks nothing else anywhere: of
# an installed copy of the documents. --list prints their names. Exit status 1: something was reported.
import os
import re
import subprocess
import sys

LONGEST_SENTENCE = 30
LONGEST_README = 180
FIRST_COMMANDS = ['deploy/quickstart', 'tests/run']

# What a reader stops at, and what to write. Matched without regard to case.
WORDS = [
    (r'\bbeside\b', 'with, next to, in addition to'),
    (r'\bbehind\b', 'after, below'),
    (r'\btold\b', 'reported'),
    (r'\b(?:stands?|stood)\b(?!-)', 'exists, is present'),
    (r'\blook(?:s|ed|ing)?\b', 'check, read'),
    (r'\bmend(?:s|ed|ing)?\b', 'fix, repair'),
    (r'\bbut (?:for|that)\b', 'except'),
    (r'\bseldom\b', 'rarely, less often'),
    (r'\bfor want of\b', 'because ... is missing'),
    (r"\b(?:whoever|whose|somebody|nobody)\b", 'name the program or the person'),
    (r'(?:^|[.!?:] )Of [^.:,]{1,60}[:,]', 'a full sentence'),
    (r'\bgoes\b', 'is removed'),
    (r'\bwanted\b', 'desired'),
    (r'\b(?:says?|said|saying)\b', 'reports, requires'),
    (r'\b(?:by|of) itself\b', 'automatically'),
    (r'\bas it is\b', 'unchanged'),
    (r'\bmay not\b', 'must not, might not'),
    (r'(?<!tables-)\blegacy\b(?! mode)', 'legacy mode, or iptables-legacy'),
    (r'\b(?:when|where|while) (?:this|it) was (?:tried|written|built|made)\b', 'no trace of how it was made'),
    (r'\bstill to be done\b', 'the issue tracker'),
    (r'\btaken back\b', 'no trace of how it was made'),
]
WORDS = [(re.compile(pattern, re.IGNORECASE if 'Of ' not in pattern else 0), instead) for pattern, instead in WORDS]

# What ends with a full stop and is not the end of a sentence.
ABBREVIATION = re.compile(r'\b(?:e\.g|i\.e|etc|vs|cf|No)\.$')
EVIDENCE_PATH = re.compile(r'^(?:agent|deploy|featuregates|netlink|tests|\.ci|\.github)/[\w./+-]*[\w/]$')
# Where a line of a block begins with it, a reader can type it.
OUR_COMMAND = re.compile(r'(?:kube-iptables-(?:agent|skew) [a-z-]|(?:tests|deploy|\.ci)/[\w/-]+(?: |$)|podman |apt-get |cmake )')
EVIDENCE_TEST = re.compile(r'^[A-Z]\w*Test\.[A-Z]\w+$')


class Reader:
    """One document: its lines without code, and the findings in them."""

    def __init__(self, root, path):
        self.root, self.path, self.findings = root, path, []
        with open(os.path.join(root, path), encoding='utf-8') as file:
            self.lines = file.read().split('\n')

    def report(self, line, kind, text):
        self.findings.append(f'{self.path}:{line}: {kind}: {text}')

    def prose(self):
        """(line number, text) of the lines outside of fenced and quoted blocks."""
        fence = None
        sections = 0
        for number, line in enumerate(self.lines, 1):
            marker = re.match(r'\s*(```+|~~~+)', line)
            if marker and fence is None:
                fence = marker.group(1)
            elif marker and line.strip().startswith(fence):
                fence = None
                continue
            if fence is None:
                if os.path.basename(self.path) == 'CHANGELOG.md':
                    sections += line.startswith('## ')
                    if sections > 4:
                        return
                yield number, line


def slug(heading):
    """The anchor that GitHub gives a heading."""
    heading = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', heading).strip().lower().replace('`', '')
    return re.sub(r'[^\w\- ]', '', heading).replace(' ', '-')


def anchors(path, known={}):
    if path not in known:
        found, fence = set(), False
        with open(path, encoding='utf-8') as file:
            for line in file:
                fence ^= bool(re.match(r'\s*(```|~~~)', line))
                if not fence and (heading := re.match(r'#{1,6} +(.*)', line)):
                    name = slug(heading.group(1))
                    found.add(name if name not in found else f'{name}-1')
        known[path] = found
    return known[path]


def check_links(document):
    for number, line in document.prose():
        for target in re.findall(r'\]\(([^)\s]+)\)', re.sub(r'`[^`]*`', '``', line)):
            if re.match(r'https?://', target):
                continue
            if ':' in target or target.startswith('/'):
                document.report(number, 'link', f'{target} is not relative')
                continue
            name, _, anchor = target.partition('#')
            # GitHub has a workflow's page and badge there, those of the fork in which README is read.
            workflow = re.fullmatch(r'\.\./\.\./actions/workflows/([\w.-]+?)(/badge\.svg)?', name)
            if workflow:
                name = f'.github/workflows/{workflow[1]}'
                # An installed copy is on no GitHub.
                if not os.path.isdir(os.path.join(document.root, '.github')):
                    continue
            path = os.path.normpath(os.path.join(document.root, os.path.dirname(document.path), name)) if name \
                else os.path.join(document.root, document.path)
            if not os.path.exists(path):
                document.report(number, 'link', f'{target} does not exist')
            elif anchor and anchor not in anchors(path):
                document.report(number, 'link', f'{target}: no such heading')


def tests_of(root):
    """Suite.Name of every test in the sources; parametrised suites are named as their class is."""
    found = set()
    for folder, _, files in os.walk(os.path.join(root, 'tests')):
        for name in files:
            if name.endswith('_test.cc'):
                with open(os.path.join(folder, name), encoding='utf-8') as file:
                    found.update(f'{suite}.{test}' for suite, test in
                                 re.findall(r'^TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)', file.read(), re.MULTILINE))
    return found


def check_evidence(document, tests):
    for number, line in document.prose():
        for code in re.findall(r'`([^`]+)`', line):
            path = os.path.join(document.root, code)
            # A header and its source are named without their ends.
            if EVIDENCE_PATH.match(code) and not any(os.path.exists(path + end) for end in ('', '.h', '.cc')):
                document.report(number, 'evidence', f'{code} does not exist')
            if EVIDENCE_TEST.match(code) and code not in tests:
                document.report(number, 'evidence', f'no test {code}')


def check_commands(document):
    fence = None
    for number, line in enumerate(document.lines, 1):
        marker = re.match(r'\s*```+(.*)', line)
        if marker:
            fence = None if fence is not None else marker.group(1)
        elif fence in ('', 'console') and OUR_COMMAND.match(line) or fence is None and re.match(r' {4}', line) and \
                OUR_COMMAND.match(line.strip()):
            document.report(number, 'command', f'begin its block with ```sh: {line.strip()[:60]}')


def paragraphs(document):
    """(line number, text): paragraphs, list items, headings and table cells, code and link targets left out."""
    first, words = 0, []
    for number, line in list(document.prose()) + [(0, '')]:
        text = line.strip()
        starts = not text or re.match(r'(#{1,6} |[*+-] |\d+\. |\||>)', text)
        if starts and words:
            yield first, ' '.join(words)
            words = []
        if not text or re.match(r'\|[-:| ]+\|?$', text):
            continue
        if text.startswith('|'):
            for cell in re.split(r'(?<!\\)\|', text):
                if cell.strip():
                    yield number, cell.strip()
            continue
        if not words:
            first = number
        words.append(re.sub(r'^(#{1,6} |[*+-] |\d+\. |> ?)', '', text))


def plain(text):
    text = re.sub(r'`[^`]*`', 'CODE', text)
    text = re.sub(r'"[^"]*"', 'QUOTE', text)
    text = re.sub(r'\]\([^)]*\)', ']', text)
    return re.sub(r'[*_\[\]]', '', text)


def sentences(text):
    kept = ''
    for part in re.split(r'(?<=[.!?])["\')]* +', text):
        kept = f'{kept} {part}' if kept else part
        if not ABBREVIATION.search(kept):
            yield kept
            kept = ''
    if kept:
        yield kept


def check_words(document):
    for number, text in paragraphs(document):
        text = plain(text)
        for pattern, instead in WORDS:
            for found in pattern.finditer(text):
                document.report(number, 'word', f'"{found.group(0).strip()}": {instead}')
        for sentence in sentences(text):
            count = len(re.findall(r"[\w][\w'’.,/-]*", sentence))
            if count > LONGEST_SENTENCE:
                document.report(number, 'sentence', f'{count} words: {sentence[:90]}')


def check_steps(document):
    last = {}
    for number, line in document.prose():
        if step := re.match(r'( *)(\d+)\. ', line):
            before, last[step[1]] = last.get(step[1], 0), int(step[2])
            if last[step[1]] not in (1, before + 1):
                document.report(number, 'step', f'{step[2]} after {before}')


def check_figures(document):
    """Figures that a table repeats from a report are that report's, and so is the version next to its link."""
    for number, line in document.prose():
        cells = line.strip().strip('|').split(' | ')
        link = re.search(r'\]\(([^)]*report\.md)', cells[-1]) if line.startswith('| ') else None
        path = os.path.join(document.root, os.path.dirname(document.path), link.group(1)) if link else None
        if path is None or not os.path.exists(path):
            continue
        with open(path, encoding='utf-8') as file:
            report = re.sub(r'(?<=\d)[ ,\u00a0\u202f](?=\d{3}\b)', '', file.read())
        versions = re.findall(r'v\d+\.\d+\.\d+', cells[-1])
        figures = re.findall(r'\d+(?:\.\d+)?', re.sub(r'(?<=\d),(?=\d{3}\b)', '', cells[-2])) if versions else []
        for words in versions + figures:
            if not re.search(rf'(?<![\w.]){re.escape(words)}(?![\d]|\.\d)', report):
                document.report(number, 'figure', f'{words} is not in {link.group(1)}')


def check_stamps(document):
    """What a report measured can be found again: tests/stamp. A copy of the sources without history has no commits."""
    def git(*command):
        return subprocess.run(['git', '-C', document.root, *command], capture_output=True, text=True, check=False)
    if not os.path.exists(f'{document.root}/.git') or git('rev-parse', '--is-shallow-repository').stdout != 'false\n':
        return
    for number, line in enumerate(document.lines, 1):
        for commit, after in re.findall(r'\bv[\d.]+ \(([0-9a-f]{7,})(?:-dirty)?\)(, a commit that is not in this history)?', line):
            if not after and git('merge-base', '--is-ancestor', commit, 'HEAD').returncode != 0:
                document.report(number, 'stamp', f'{commit} is not a commit of this history')


def check_readme(document):
    if len(document.lines) - 1 > LONGEST_README:
        document.report(len(document.lines) - 1, 'length', f'{len(document.lines) - 1} lines, at most {LONGEST_README}')
    block = re.search(r'^```sh[^\n]*\n(.*?)^```', '\n'.join(document.lines), re.MULTILINE | re.DOTALL)
    commands = [line.split()[0] for line in block.group(1).splitlines() if line.split()] if block else []
    if commands != FIRST_COMMANDS:
        document.report(1, 'length', f'the first commands are {commands}, not {FIRST_COMMANDS}')


def written_by_a_tool(path):
    return re.match(r'tests/.*\breport(/[\w-]+)?\.md$', path) is not None


def documents_of(root):
    for folder, folders, files in os.walk(root):
        inside = os.path.relpath(folder, root)
        folders[:] = sorted(name for name in folders if name == '.github' or
                            name not in ('build', 'node_modules') and not name.startswith('.'))
        for name in sorted(files):
            if name.endswith('.md'):
                yield os.path.normpath(os.path.join(inside, name))


def main():
    arguments = sys.argv[1:]
    links_only = arguments[:1] == ['--links']
    arguments = arguments[links_only:]
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
    if arguments[:1] == ['--root']:
        root, arguments = arguments[1], arguments[2:]
    root = os.path.abspath(root)
    if arguments == ['--list']:
        print('\n'.join(documents_of(root)))
        return 0
    tests = tests_of(root)
    paths = arguments or list(documents_of(root))
    found = []
    for path in paths:
        document = Reader(root, path)
        check_links(document)
        if not links_only and not written_by_a_tool(path):
            check_evidence(document, tests)
            check_commands(document)
            check_steps(document)
            check_figures(document)
            check_words(document)
        if not links_only and written_by_a_tool(path):
            check_stamps(document)
        if path == 'README.md' and not links_only:
            check_readme(document)
        found += document.findings
    for finding in found:
        print(finding)
    print(f'{len(paths)} documents read, {len(found)} findings')
    return 1 if found or not paths else 0


if __name__ == '__main__':
    sys.exit(main())
