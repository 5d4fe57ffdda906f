# SPDX-License-Identifier: Apache-2.0
"""The unit test programs of a build directory, with some of their sources exchanged for rewritten ones."""
import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

# The first folder is that of the sources; the unit tests of the others may notice too. Kernel tests are run
# only where no unit test notices.
PROGRAM_FOLDERS = {'featuregates': ('featuregates',), 'netlink': ('netlink', 'agent', 'kernel'),
                   'agent': ('agent', 'kernel')}
OBJECTS = ('agent/CMakeFiles/kipt_', 'featuregates/', 'netlink/CMakeFiles/', 'tests/support/')
ERROR = re.compile(r'^(\S[^:\n]*):(\d+):\d+: (?:fatal )?error: (.*)', re.MULTILINE)


class BuildFailed(Exception):
  pass


def run(command, **options):
  return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                        errors='replace', check=False, **options)


class Build:
  """`root` is the source tree, `build` a finished build of it with ninja, `work` is ours."""

  def __init__(self, root, build, work, jobs):
    self.root = root
    self.build = build
    self.work = work
    self.jobs = jobs
    self.ccache = shutil.which('ccache')
    self.shadow = os.path.join(work, 'sources')
    self.include = os.path.join(root, 'tests', 'mutants', 'mutant.h')
    with open(os.path.join(build, 'compile_commands.json'), encoding='utf-8') as file:
      commands = json.load(file)
    self.commands = {}  # by object
    for entry in commands:
      words = shlex.split(entry['command'])
      self.commands[words[words.index('-o') + 1]] = words
    self.sources = {object_: self.relative(words[words.index('-c') + 1])
                    for object_, words in self.commands.items()}
    self.needs = self.read_needs()

  def relative(self, path):
    return os.path.relpath(os.path.realpath(os.path.join(self.build, path)), self.root)

  def ninja(self, *words):
    done = subprocess.run(['ninja', '-C', self.build, '-t', *words], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
      raise BuildFailed(f'ninja -t {" ".join(words)}: {done.stdout}{done.stderr}')
    return '\n'.join(line for line in done.stdout.split('\n') if not line.startswith('ninja: '))

  def read_needs(self):
    """By object, the sources of the tree that it is made from."""
    needs = {}
    known = {}
    object_ = None
    for line in self.ninja('deps').split('\n'):
      if line.startswith('    '):
        path = line.strip()
        if path not in known:
          known[path] = self.relative(path)
        if not known[path].startswith('..'):
          needs[object_].add(known[path])
      elif ': #deps' in line:
        object_ = line.split(':')[0]
        needs[object_] = set()
    return needs

  def programs(self, folder, patterns):
    """Test programs for the sources of `folder`; where there are patterns, those that fit one."""
    targets = self.ninja('targets', 'all')
    return [name for of in PROGRAM_FOLDERS[folder]
            for name in re.findall(rf'^(tests/{of}/(?:\w+/)*\w+_test): CXX_EXECUTABLE', targets, re.MULTILINE)
            if not patterns or any(fnmatch.fnmatch(os.path.basename(name), each) for each in patterns)]

  def bring_up_to_date(self, programs):
    done = run(['ninja', '-C', self.build, f'-j{self.jobs}', *programs])
    if done.returncode != 0:
      raise BuildFailed(done.stdout[-4000:])
    self.needs = self.read_needs()

  def link_command(self, program):
    """As words, and the objects among them."""
    line = self.ninja('commands', program).strip().split('\n')[-1]
    line = re.sub(r'^: && | && :$', '', line.strip())
    return shlex.split(line)

  def objects_that_need(self, files, programs):
    """Objects of the library and of `programs` that are made from one of `files`."""
    folders = tuple(os.path.join(os.path.dirname(program), 'CMakeFiles',
                                 os.path.basename(program) + '.dir') for program in programs)
    found = []
    for object_ in self.commands:
      if not object_.startswith(OBJECTS + folders):
        continue
      if self.sources[object_] in files or self.needs.get(object_, set()) & files:
        found.append(object_)
    return found

  def write(self, file, text):
    """Whether that made it another."""
    path = os.path.join(self.shadow, file)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.exists(path):
      with open(path, encoding='utf-8') as old:
        if old.read() == text:
          return False
    with open(path, 'w', encoding='utf-8') as out:
      out.write(text)
    return True

  def compile(self, object_):
    """Compiler's errors, as pairs of a file of the tree and a line; empty where there were none."""
    words = list(self.commands[object_])
    out = os.path.join(self.work, 'objects', object_)
    os.makedirs(os.path.dirname(out), exist_ok=True)
    words[words.index('-o') + 1] = out
    source = os.path.join(self.shadow, self.sources[object_])
    if os.path.exists(source):
      words[words.index('-c') + 1] = source
    words = [word for word in words if word != '-Werror']
    at = words.index('-o')
    words[at:at] = ['-w', '-Wno-narrowing', '-include', self.include]
    # A test's options stay: its precompiled headers were made with them.
    if not self.sources[object_].startswith('tests/'):
      words = [word for word in words if not re.fullmatch(r'-O\d|-g\d?|-D_FORTIFY_SOURCE=\d', word)]
      # A mutant that reads beyond the end of a vector must be noticed.
      words.insert(words.index('-w'), '-D_GLIBCXX_ASSERTIONS')
    if self.ccache and not os.path.basename(words[0]).endswith('ccache'):
      words.insert(0, self.ccache)
    # Before all others: there the rewritten headers are found.
    first = next(at for at, word in enumerate(words) if word.startswith(('-I', '-isystem', '-D', '-O',
                                                                         '-std', '-f', '-w')))
    words.insert(first, f'-I{self.shadow}')
    # The rewritten headers were written just now, which ccache would hold against them.
    sloppy = 'include_file_mtime,include_file_ctime,pch_defines,time_macros'
    done = run(words, cwd=self.build, env=dict(os.environ, CCACHE_SLOPPINESS=sloppy))
    if done.returncode == 0:
      return []
    errors = [(self.tree_file(path), int(line), text) for path, line, text in
              ERROR.findall(done.stdout)]
    places = [(self.tree_file(path), int(line), '') for path, line in
              re.findall(r'^(\S[^:\n]*):(\d+):\d+:', done.stdout, re.MULTILINE)]
    if not errors:
      raise BuildFailed(f'{" ".join(words)}\n{done.stdout[-4000:]}')
    return errors + places

  def tree_file(self, path):
    path = os.path.realpath(os.path.join(self.build, path))  # ccache makes it relative
    if path.startswith(self.shadow + os.sep):
      return os.path.relpath(path, self.shadow)
    return os.path.relpath(path, self.root)

  def compile_all(self, objects):
    """What `compile` says, by object."""
    with ThreadPoolExecutor(self.jobs) as pool:
      return dict(zip(objects, pool.map(self.compile, objects)))

  def compile_told(self):
    out = os.path.join(self.work, 'told.o')
    test = next(words for object_, words in self.commands.items()
                if object_.startswith('tests/featuregates/'))
    compiler = next(word for word in test if not word.endswith('ccache'))
    includes = [word for word in test if word.startswith(('-I', '-std'))]
    done = run([compiler, *includes, '-std=c++20', f'-I{self.root}', '-O1', '-o', out, '-c',
                os.path.join(self.root, 'tests', 'mutants', 'told.cc')], cwd=self.build)
    if done.returncode != 0:
      raise BuildFailed(done.stdout)

  def link(self, program, exchanged):
    """The path of the program, made with those of `exchanged` that it has or may have."""
    words = self.link_command(program)
    out = os.path.join(self.work, 'programs', os.path.basename(program))
    os.makedirs(os.path.dirname(out), exist_ok=True)
    words[words.index('-o') + 1] = out
    first = next(at for at, word in enumerate(words) if word.endswith('.o'))
    own = os.path.dirname(program)
    library = []
    for object_ in exchanged:
      path = os.path.join(self.work, 'objects', object_)
      if object_ in words:
        words[words.index(object_)] = path
      elif not object_.startswith(own + '/') and self.may_link(object_, words):
        library.append(path)
    # In front, so that they are taken instead of the archives' and their tables are filled first.
    words[first:first] = [os.path.join(self.work, 'told.o'), *library]
    if not any(word.startswith('-fuse-ld=') for word in words):
      words.append('-fuse-ld=gold')
    done = run(words, cwd=self.build)
    if done.returncode != 0:
      raise BuildFailed(f'{" ".join(words)}\n{done.stdout[-4000:]}')
    return out

  @staticmethod
  def may_link(object_, words):
    """Whether the program links the archive that the object belongs to."""
    archive = re.match(r'(.*)/CMakeFiles/(\w+)\.dir/', object_)
    return archive is not None and any(
        word.endswith(f'lib{archive.group(2)}.a') for word in words)
