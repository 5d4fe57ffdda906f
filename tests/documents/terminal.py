# SPDX-License-Identifier: Apache-2.0
#
# A shell on a terminal of its own, recorded with times, and the SVG of such recordings. tests/documents/pictures
# uses it.
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from xml.sax.saxutils import escape

COLUMNS = 100
SECONDS = 20  # How long a command may take.
STAY = 6  # Seconds for which the last frame stays.
CELL, ROW, MARGIN = 7.83, 18, 12
PROMPT = '# '
SGR = re.compile(r'\x1b\[([\d;]*)m')
# Select graphic rendition: what the agent uses, and a light and a dark colour.
CLASSES = {1: 'font-weight:bold', 2: 'opacity:.7', 31: ('#b3161b', '#ff8b82'), 32: ('#116329', '#5fd975'),
           33: ('#7d4e00', '#e3b341'), 34: ('#0550ae', '#79c0ff'), 36: ('#0550ae', '#79c0ff'),
           90: ('#59636e', '#9da7b3')}
GROUND, EDGE, TEXT = ('#f6f8fa', '#151b23'), ('#8c959f', '#656c76'), ('#1f2328', '#e6edf3')


def rules(dark):
    # Plain values: some programs that draw SVG know no variables, or no style sheets, and draw everything black.
    found = (f'rect{{fill:{GROUND[dark]};stroke:{EDGE[dark]}}}text{{fill:{TEXT[dark]};white-space:pre}}'
             f'.title{{fill:{CLASSES[90][dark]}}}')
    for code, rule in CLASSES.items():
        found += f'.s{code}{{{rule if isinstance(rule, str) else "fill:" + rule[dark]}}}'
    return found


class Shell:
    """An interactive bash. `text` is what it printed, `times` has the time of each character."""

    def __init__(self, title, environment):
        self.title, self.text, self.times = title, '', []
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.execve('/usr/bin/setpriv', ['setpriv', '--pdeathsig', 'KILL', 'bash', '--norc', '--noprofile',
                                           '--noediting'], environment)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 50, COLUMNS, 0, 0))

    def close(self):
        for group in {os.tcgetpgrp(self.terminal), self.process}:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os.close(self.terminal)
        os.waitpid(self.process, 0)

    def lines(self):
        """[[(time, classes, text)]], without carriage returns and escape sequences."""
        found, classes, at = [[]], (), 0
        for part in re.split(r'(\x1b\[[\d;]*[A-Za-z]|\r|\n)', self.text):
            if part == '\n':
                found.append([])
            elif sequence := SGR.fullmatch(part):
                codes = [int(code or 0) for code in sequence.group(1).split(';')]
                classes = () if 0 in codes else classes + tuple(code for code in codes if code in CLASSES)
            elif part and part[0] not in '\r\x1b':
                for number, letter in enumerate(part):
                    when = self.times[at + number]
                    if found[-1] and found[-1][-1][:2] == (when, classes):
                        found[-1][-1] = (when, classes, found[-1][-1][2] + letter)
                    else:
                        found[-1].append((when, classes, letter))
            at += len(part)
        return found[:-1] if not found[-1] else found


class Recording:
    """Shells that are read together: what one does shows in the other at that time."""

    def __init__(self, *shells):
        self.shells, self.start = shells, time.monotonic()
        try:
            for shell in shells:
                self.wait(shell, PROMPT + '$')
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for shell in self.shells:
            shell.close()

    def read(self, seconds):
        ready = select.select([shell.terminal for shell in self.shells], [], [], seconds)[0]
        for shell in self.shells:
            if shell.terminal in ready:
                text = os.read(shell.terminal, 65536).decode(errors='replace')
                shell.text += text
                shell.times += [round(time.monotonic() - self.start, 2)] * len(text)

    def pause(self, seconds):
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0:
            self.read(rest)

    def wait(self, shell, pattern, after=0):
        until = time.monotonic() + SECONDS
        while not re.search(pattern, shell.text[after:]):
            if time.monotonic() > until:
                raise TimeoutError(f'{shell.title}: {pattern!r} was not printed within {SECONDS} s:\n{shell.text}')
            self.read(0.1)

    def type(self, shell, command, until='\n' + PROMPT + '$', seconds=0.0):
        """Types the command, a letter every `seconds`, and waits for `until`."""
        after = len(shell.text)
        for letter in command:
            os.write(shell.terminal, letter.encode())
            self.pause(seconds)
        os.write(shell.terminal, b'\n')
        self.wait(shell, until, after)

    def restart_clock(self):
        """What was printed so far has no time: it is there from the first frame on."""
        for shell in self.shells:
            shell.times = [0.0] * len(shell.text)
        self.start = time.monotonic()


def wrap(line):
    """The line's segments in rows of at most COLUMNS, which end at a space where there is one."""
    text, ends = ''.join(part[2] for part in line), [0]
    while len(text) - ends[-1] > COLUMNS:
        space = text.rfind(' ', ends[-1] + COLUMNS // 2, ends[-1] + COLUMNS)
        ends.append(space + 1 if space >= 0 else ends[-1] + COLUMNS)
    rows, at = [[] for _ in ends], 0
    for when, classes, part in line:
        for row, start in enumerate(ends):
            end = ends[row + 1] if row + 1 < len(ends) else len(text)
            if piece := part[max(start - at, 0):max(end - at, 0)]:
                rows[row].append((when, classes, piece))
        at += len(part)
    return rows


def draw_line(line, y, ids):
    parts, rows = [], wrap(line)
    for number, row in enumerate(rows):
        for place, (when, classes, text) in enumerate(row):
            names = [f's{code}' for code in classes] + ([f't{ids[when]}'] if when else [])
            start = f' x="{MARGIN}" dy="{ROW}"' if number and not place else ''
            style = f' class="{" ".join(names)}"' if names else ''
            parts.append(f'<tspan{start}{style}>{escape(text)}</tspan>' if start or style else escape(text))
    return f'<text x="{MARGIN}" y="{y}">{"".join(parts)}</text>' if parts[0] else '', y + ROW * len(rows)


def draw(title, made_by, shells):
    """One frame per shell, one below the other. Every <text> with an x is a whole line, for lines_of()."""
    panes = [(shell.title, [[segment for segment in line] for line in shell.lines()]) for shell in shells]
    times = sorted({segment[0] for _, lines in panes for line in lines for segment in line} - {0.0})
    ids = {when: number for number, when in enumerate(times)}
    length = (times[-1] if times else 0) + STAY
    parts, y, width = [], 6, round(COLUMNS * CELL + 2 * MARGIN)
    for name, lines in panes:
        top, y = y, y + ROW
        drawn = [f'<text class="title" x="{MARGIN}" y="{y}">{escape(name)}</text>']
        y += ROW + 4
        for line in lines:
            if not line:
                y += ROW
                continue
            text, y = draw_line(line, y, ids)
            drawn.append(text)
        parts += [f'<g><rect x="1" y="{top}" width="{width - 2}" height="{y - top - 6}" rx="6" '
                  f'fill="{GROUND[0]}" stroke="{EDGE[0]}"/>', *drawn, '</g>']
        y += 4
    style = f'{rules(0)}@media (prefers-color-scheme:dark){{{rules(1)}}}'
    # Without animations, or for a reader who wants none, everything is visible.
    moves = ''.join(f'@keyframes k{number}{{0%{{visibility:hidden}}{100 * when / length:.2f}%{{visibility:visible}}}}'
                    f'.t{number}{{animation:k{number} {length:.2f}s step-end infinite}}'
                    for when, number in ids.items())
    if moves:
        style += f'@media (prefers-reduced-motion:no-preference){{{moves}}}'
    return '\n'.join([f'<!-- {made_by} -->',
                      f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" xml:space="preserve" '
                      'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,\'DejaVu Sans Mono\','
                      '\'Liberation Mono\',monospace" font-size="13">',
                      f'<title>{escape(title)}</title>', f'<style>{style}</style>', *filter(None, parts), '</svg>', ''])
