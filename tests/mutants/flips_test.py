# SPDX-License-Identifier: Apache-2.0
"""What flips.py and statements.py make of short sources, what lists.py holds against wrong lists, and the report."""
import os
import sys
import tempfile
import unittest
from types import SimpleNamespace

sys.dont_write_bytecode = True
import report
import trials
from flips import Rewriter
from lists import Lists
from mutant import Mutant
from rewritten import Rewritten


def flips_of(body, head='int F(int x)'):
  return [m.flip for m in Rewriter('a.cc', f'{head} {{\n  {body}\n}}\n', {}, 0).mutants]


def left_out_of(body, head='int F(int x)'):
  return [flip[1:-len(';` left out')] for flip in flips_of(body, head) if flip.endswith(';` left out')]


class StatementsTest(unittest.TestCase):

  def test_leaves_out_what_has_an_effect_and_only_that(self):
    for name, body, want in (
        ('a call', 'Send(x); return 1;', ['Send(x)']),
        ('a call of a member of a call', 'a->b().c(x); return 1;', ['a->b().c(x)']),
        ('an assignment', 'a.b[x] = 2; return 1;', ['a.b[x] = 2']),
        ('an assignment through a pointer', '*a = 2; return 1;', ['*a = 2']),
        ('a sum', 'a_ += Cost(x); return 1;', ['a_ += Cost(x)']),
        ('a step', '++a_; return 1;', ['++a_']),
        ('no declaration with a value', 'const int a = 2; Type b = 2; return 1;', []),
        ('no declaration of a pointer or a reference', 'Type* a = 0; Type& b = c; return 1;', []),
        ('no declaration with a constructor', 'Type a(2); std::vector<int> b(3); return 1;', []),
        ('no call that only takes memory', 'a.reserve(x); return 1;', []),
        ('no last return', 'return x;', []),
        ('an early return', 'if (x) return 2; return 1;', ['return 2']),
        ('an early return in braces', 'if (x) { return 2; } return 1;', ['return 2']),
        ('no return with nothing after it', 'if (x) { return 2; } else { return 1; }', []),
        ('the end of a loop that never ends by itself', 'while (true) { if (Go(x)) return 2; }', ['return 2']),
        ('break and continue', 'for (;;) { if (a) break; if (b) continue; } return 1;', ['break', 'continue']),
        ('both branches', 'if (x) A(); else B(); return 1;', ['A()', 'B()']),
        ('what a lambda does', 'Each([&](int y) { A(y); }); return 1;', ['A(y)', 'Each([&](int y) { A(y); })']),
        ('a function for a value that is moved from', 'return 1; } int G() && { A(); return 2;', ['A()']),
        ('nothing of an initializer', 'Type a = {.b = C(), .d = {E(), F()}}; return 1;', []),
        ('nothing of a loop\'s head', 'for (i = 0; i < x; ++i) A(); return 1;', ['A()']),
    ):
      with self.subTest(name):
        self.assertEqual(left_out_of(body), want)

  def test_leaves_out_the_return_of_a_function_without_a_value(self):
    self.assertEqual(left_out_of('if (x) return; A();', 'void F(int x)'), ['return', 'A()'])

  def test_leaves_out_what_a_constructor_does(self):
    self.assertEqual(left_out_of('A();', 'Type::Type() : a_(Make())'), ['A()'])

  def test_keeps_an_else_with_its_if(self):
    text = Rewriter('a.cc', 'void F() {\n  if (a) B(); else C();\n}\n', {}, 0).text
    self.assertIn('{ if (!kipt_mutants::Is(2)) B(); } else', text)

  def test_does_not_ask_a_condition(self):
    self.assertIn('`absl::IsNotFound(status)` is not asked',
                  flips_of('if (absl::IsNotFound(status)) A(); return 1;'))
    self.assertIn('`!s.ok()` is not asked', flips_of('if (Status s = A(); !s.ok()) return 2; return 1;'))

  def test_keeps_a_constructor_that_is_default(self):
    text = 'class A {\n public:\n  constexpr A() = default;\n  A(const A&) = delete;\n};\n'
    self.assertEqual(Rewriter('a.h', text, {}, 0).text, text)

  def test_a_table_that_is_filled_once_is_reached_by_each_call(self):
    text = Rewriter('a.cc', 'void F() {\n  static constexpr int kA[] = {1, 2};\n}\n', {}, 0).text
    self.assertIn('kipt_mutants::Touch(0, 4);', text)

  def test_a_constant_of_a_class_needs_no_definition(self):
    text = Rewriter('a.h', 'class A {\n  static constexpr int kA = 1;\n};\n', {}, 0).text
    self.assertIn('static inline const int kA = ', text)

  def test_leaves_each_name_out_of_a_list(self):
    found = Rewriter('agent/process/syscall_filter.cc',
                     'constexpr Row kRows[] = {{kA, "kill pipe2"}, {kB, "fork"}};\n', {}, 0).mutants
    self.assertEqual([m.flip for m in found if 'left out' in m.flip],
                     ['`kill` left out of the list', '`pipe2` left out of the list'])


class WithLists(unittest.TestCase):

  def setUp(self):
    self.folder = tempfile.TemporaryDirectory()
    self.addCleanup(self.folder.cleanup)

  def lists(self, equivalent='', alive=''):
    paths = []
    for name, text in (('equivalent', equivalent), ('alive', alive)):
      paths.append(os.path.join(self.folder.name, name))
      with open(paths[-1], 'w', encoding='utf-8') as file:
        file.write(text)
    return Lists(*paths)


class ListsTest(WithLists):

  def wrong(self, lists, caught_by, all_tried=True):
    mutant = Mutant(7, 'a.cc', 3, 'F', 'A();', '`A();` left out')
    outcome = SimpleNamespace(caught_by=caught_by, tests=2)
    return '\n'.join(lists.wrong([mutant], {7: outcome}, {'a.cc'}, all_tried))

  LINE = 'a.cc\tF\tA();\t`A();` left out'

  def test_a_survivor_must_be_in_a_list(self):
    self.assertIn('ALIVE a.cc:3', self.wrong(self.lists(), ''))
    self.assertEqual('', self.wrong(self.lists(alive=self.LINE), ''))
    self.assertEqual('', self.wrong(self.lists(equivalent=self.LINE + '\tno effect'), ''))

  def test_what_is_caught_must_be_in_none(self):
    self.assertEqual('', self.wrong(self.lists(), 'T.Catches'))
    self.assertIn('alive.txt: T.Catches catches this one', self.wrong(self.lists(alive=self.LINE), 'T.Catches'))
    self.assertIn('equivalent.txt: T.Catches catches this one',
                  self.wrong(self.lists(equivalent=self.LINE + '\tno effect'), 'T.Catches'))

  def test_a_line_without_a_mutant_is_wrong_where_all_were_tried(self):
    other = self.lists(alive=self.LINE.replace('A();', 'B();'))
    self.assertIn('alive.txt: there is no such mutant', self.wrong(other, 'T.Catches'))
    self.assertEqual('', self.wrong(other, 'T.Catches', all_tried=False))

  def test_a_line_must_have_its_cells_once(self):
    for equivalent, alive in (('', 'a.cc\tF\tA();'), (self.LINE, ''), ('', self.LINE + '\n' + self.LINE),
                              (self.LINE + '\tno effect', self.LINE)):
      with self.assertRaises(ValueError):
        self.lists(equivalent, alive)

  def test_survivors_are_written_in_place_of_the_file_s_lines(self):
    lists = self.lists(alive='# head\nb.cc\tG\tB();\tflip\na.cc\tF\told\tflip\n')
    lists.write_alive([tuple(self.LINE.split('\t'))], {'a.cc'})
    with open(lists.alive_path, encoding='utf-8') as file:
      self.assertEqual(file.read(), f'# head\n{self.LINE}\nb.cc\tG\tB();\tflip\n')


class ReportTest(WithLists):

  def test_is_one_page_and_says_what_was_tried_where(self):
    folder = os.path.join(self.folder.name, 'records')
    files = [f'a/{number}.cc' for number in range(100)]
    mutants = [Mutant(number, file, 3, 'F', 'A();', '`A();` left out') for number, file in enumerate(files)]
    outcomes = {number: SimpleNamespace(caught_by='T.Catches' if number < 20 else '', how='failed')
                for number in range(100)}
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    digests = {file: 'as it was' for file in files}
    report.keep(folder, report.stamp(root), {file: digests[file] for file in files[:90]}, mutants[:90], outcomes, [])
    key = 'F\tA();\t`A();` left out'
    lists = self.lists(equivalent=f'a/20.cc\t{key}\tno effect\n', alive=f'a/21.cc\t{key}\n')
    path = os.path.join(self.folder.name, 'report.md')
    report.write_short(path, report.records(folder, digests, lists), files)
    with open(path, encoding='utf-8') as file:
      text = file.read()
    self.assertIn('90 mutants: 20 caught (20 by a failed expectation', text)
    self.assertIn('1 equivalent, 1 known to be alive, 68 alive', text)
    self.assertRegex(text, r'- 90 of a: version \d+\.\d+\.\d+, commit ')
    self.assertIn('- 10 sources were not tried as they are now: 10 of a.', text)
    self.assertLessEqual(text.count('\n'), 65)
    self.assertEqual(len(report.survivors(folder, files)), 70)
    outcomes[89].caught_by = 'T.CatchesNow'
    report.keep_survivors(folder, report.stamp(root), mutants[89:90], outcomes)
    self.assertEqual(len(report.survivors(folder, files)), 69)
    changed = {**digests, 'a/5.cc': 'edited'}
    self.assertEqual(len(report.records(folder, changed, lists)), 89)

  def test_where_some_tests_did_not_run_only_a_source_without_survivors_counts(self):
    folder = self.folder.name
    stamp = ('1.0', 'abc')
    mutants = [Mutant(number, f'{name}.cc', 1, 'F', 'A();', '`A();` left out') for number, name in enumerate('abc')]
    outcomes = {number: trials.Outcome('T.Catches' if number == 0 else '', 'failed') for number in range(3)}
    digests = {'a.cc': '1', 'b.cc': '2', 'c.cc': '3'}
    lists = self.lists(equivalent='b.cc\tF\tA();\t`A();` left out\tno effect\n')

    def counted():
      return [record['file'] for record in report.records(folder, digests, lists)]

    report.keep(folder, stamp, digests, mutants, outcomes, [], 'netlink_test')
    self.assertEqual(counted(), ['a.cc', 'b.cc'])
    self.assertEqual(len(report.records(folder, digests, lists, unsettled=True)), 3)
    path = os.path.join(folder, 'report.md')
    report.write_short(path, report.records(folder, digests, lists), digests)
    with open(path, encoding='utf-8') as file:
      self.assertIn('commit abc, with fewer tests (netlink_test).', file.read())
    report.keep_survivors(folder, stamp, mutants[2:], outcomes, 'kernel_test')
    self.assertEqual(counted(), ['a.cc', 'b.cc'])
    report.keep_survivors(folder, stamp, mutants[2:], outcomes)
    self.assertEqual(counted(), ['a.cc', 'b.cc', 'c.cc'], 'all tests have been tried: it lives')

  def test_a_digest_is_of_the_text(self):
    found = []
    for text in ('x', 'y', 'x'):
      with open(os.path.join(self.folder.name, 'a.cc'), 'w', encoding='utf-8') as file:
        file.write(text)
      found.append(report.digests(self.folder.name, ['a.cc'])['a.cc'])
    self.assertEqual(found[0], found[2])
    self.assertNotEqual(found[0], found[1])


class GiveWayTest(unittest.TestCase):

  def test_a_constant_that_the_compiler_needs_keeps_its_value(self):
    error = 'the value of ‘n::C::kRoom’ is not usable in a constant expression'
    for name, text in (
        ('of a namespace', 'constexpr int kOther = 2;\nconstexpr int kRoom = 1;\n'),
        ('of a class', 'struct C { static constexpr int kOther = 2;\nstatic constexpr int kRoom = 1; };\n')):
      with self.subTest(name):
        rewritten = Rewritten.__new__(Rewritten)
        rewritten.mutants = Rewriter('a.h', text, {}, 0).mutants
        rewritten.disabled = {}
        rewritten.give_way('a.o', [('a.cc', 7, error)])
        self.assertEqual([m.line for m in rewritten.mutants], [1, 2])
        self.assertEqual([m.line for m in rewritten.mutants if m.key() in rewritten.disabled], [2])


class TrialsTest(unittest.TestCase):

  UNIT = trials.Program('u', 'u_test', {'U.A': 1, 'U.B': 1, 'U.Slow': 900}, {1: ['U.A', 'U.Slow']}, {2})
  KERNEL = trials.Program('k', 'kernel_test', {'K.A': 1, 'K.B': 1}, {1: ['K.A']}, {2})

  def turns(self, mutant, program, near=(), **how):
    return [tests for _, tests in trials.in_turn([(program, list(near))], mutant, how.get('only_quick', False),
                                                 how.get('likely', ('', '')))]

  def test_slow_tests_come_last_and_likely_ones_first(self):
    self.assertEqual(self.turns(1, self.UNIT), [['U.A'], ['U.Slow']])
    self.assertEqual(self.turns(1, self.UNIT, only_quick=True), [['U.A']])
    self.assertEqual(self.turns(1, self.UNIT, likely=('u_test', 'U.Slow')), [['U.Slow'], ['U.A']])
    self.assertEqual(self.turns(3, self.UNIT), [])

  def test_the_programs_of_its_own_folder_come_first_then_those_that_reach_the_most(self):
    reaching = {'netlink_test': 1, 'agent_loop_test': 2, 'agent_report_test': 3, 'agent_policy_test': 0}
    programs = [trials.Program(name, name, {}, {number: ['T.A'] for number in range(count)})
                for name, count in reaching.items()]
    for folder, want in (('agent/loop', ['agent_loop_test', 'agent_report_test', 'netlink_test']),
                         ('netlink', ['netlink_test', 'agent_report_test', 'agent_loop_test'])):
      order = trials.in_order(programs, [0, 1, 2], [0, 1, 2], folder)
      self.assertEqual([program.name for program, _ in order], want)

  def test_a_table_is_tried_with_its_source_s_tests_and_then_with_all_unit_tests(self):
    self.assertEqual(self.turns(2, self.UNIT, ['U.B']), [['U.B'], ['U.A', 'U.Slow']])
    self.assertEqual(self.turns(2, self.KERNEL, ['K.B']), [['K.B']])
    self.assertEqual(self.turns(2, self.KERNEL), [])

  def test_what_a_busy_machine_may_have_caused_counts_if_it_comes_again(self):
    late = trials.Outcome('U.A', 'time limit', 1, 'u_test')
    failed = trials.Outcome('U.A', 'failed', 1, 'u_test')
    missed = trials.Outcome(tests=9)
    for name, is_listed, outcomes, want in (
        ('a failure', False, [failed], failed),
        ('no failure', False, [missed], missed),
        ('late on a busy machine, and caught by nothing', False, [late, missed], missed),
        ('late on a busy machine, and caught in time', False, [late, failed], failed),
        ('it never ends', False, [late, late], late),
        ('a listed mutant that is caught', True, [failed, failed], failed),
        ('a listed mutant, and a test that was late', True, [failed, missed], missed),
        ('a listed mutant that lives', True, [missed], missed)):
      with self.subTest(name):
        asked = []

        def once(likely, left=list(outcomes), asked=asked):
          asked.append(likely)
          return left.pop(0)

        self.assertIs(trials.confirmed(once, ('', ''), is_listed), want)
        self.assertEqual(asked, [('', ''), ('u_test', 'U.A')][:len(outcomes)])


if __name__ == '__main__':
  unittest.main()
