"""The grader against what a careful human would say, over the kinds that graders get wrong."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.envs.maths.grading.pool import POOL, Pool
from agentgym.rewards.math import answer_of, grade

SAME = [
    ("1,234", "\\boxed{1234}"),
    ("1234567", "The answer is 1,234,567."),
    ("1234.5", "\\boxed{1,234.5}"),
    ("12345", "\\boxed{12\\,345}"),
    ("1,2,3", "\\boxed{1, 2, 3}"),
    ("10000", "\\boxed{10,\\!000}"),
    ("0.5", "\\boxed{50\\%}"),
    ("50\\%", "\\boxed{50}"),
    ("50", "\\boxed{50\\%}"),
    ("12.5%", "\\boxed{\\frac{1}{8}}"),
    ("50 percent", "\\boxed{0.5}"),
    ("33\\frac{1}{3}\\%", "\\boxed{\\frac13}"),
    ("11/6", "The answer is 1 5/6"),
    ("-11/6", "\\boxed{-1\\frac{5}{6}}"),
    ("1½", "\\boxed{1.5}"),
    ("2 1/2", "\\boxed{\\frac52}"),
    ("\\frac{3}{4}", "\\boxed{¾}"),
    ("-1/2", "\\boxed{-\\frac{1}{2}}"),
    ("-1/2", "\\boxed{\\frac{-1}{2}}"),
    ("-1/2", "\\boxed{\\frac{1}{-2}}"),
    ("-3", "The answer is \u20133."),
    ("-3", "\\boxed{- 3}"),
    ("5", "\\boxed{+5}"),
    ("1500", "\\boxed{1.5 \\times 10^3}"),
    ("1500", "\\boxed{1.5\\cdot10^{3}}"),
    ("0.00025", "\\boxed{2.5e-4}"),
    ("6.02e23", "\\boxed{6.02 \\times 10^{23}}"),
    ("1e-30", "\\boxed{10^{-30}}"),
    ("\\frac{1}{2004!}", "\\boxed{\\frac{1}{2004!}}"),
    ("24", "\\boxed{4!}"),
    ("20!", "2432902008176640000"),
    ("\\text{E}", "E"),
    ("E", "\\boxed{(E)}"),
    ("B", "\\boxed{\\textbf{(B)}}"),
    ("B", "\\boxed{B. 42}"),
    ("B", "\\boxed{\\text{(B) }42}"),
    ("B", "The answer is (B)."),
    ("B", "The correct answer is B"),
    ("B", "Answer: B) 42"),
    ("C", "\\boxed{\\mathrm{C}}"),
    ("A", "<answer>A</answer>"),
    ("D", "The correct option is **D**."),
    ("B", "\\boxed{\\text{Choice B}}"),
    ("7", "\\boxed{7} and nothing else"),
    ("7", "I got \\boxed{6}. Wait. <answer>7</answer>"),
    ("3", "\\boxed{\\boxed{3}}"),
    ("4", "\\fbox{4}"),
    ("4", "\\boxed 4"),
    ("42", "<think>maybe \\boxed{41}</think> The answer is \\boxed{42}"),
    ("42", "<think>\\boxed{41}</think> The answer is 42."),
    ("42", "<answer>The answer is 42.</answer>"),
    ("42", "<answer>\n42\n</answer>"),
    ("\\frac{a}{b}", "\\boxed{\\frac{a}{b}}"),
    ("\\{1,2\\}", "\\boxed{\\{2,1\\}}"),
    ("42", "\\[\\boxed{42}\\]"),
    ("(0,1)", "\\boxed{x\\in(0,1)}"),
    ("[0,1)", "\\boxed{0 \\le x < 1}"),
    ("[0,1)", "\\boxed{1 > x \\geq 0}"),
    ("(-\\infty, 2)", "\\boxed{x < 2}"),
    ("[3,\\infty)", "\\boxed{x \\geq 3}"),
    ("(-\\infty,-1)\\cup(1,\\infty)", "\\boxed{(1,\\infty) \\cup (-\\infty,-1)}"),
    ("(-\\infty,-1)\\cup(1,\\infty)", "\\boxed{x<-1 \\text{ or } x>1}"),
    ("(\\frac12, 1]", "\\boxed{(0.5, 1]}"),
    ("(-\\infty, \\sqrt{2})", "\\boxed{x<\\frac{2}{\\sqrt{2}}}"),
    ("y = -3", "-3"),
    ("x=5", "\\boxed{5}"),
    ("5", "\\boxed{5 = x}"),
    ("2x+1", "\\boxed{y=2x+1}"),
    ("x^2", "\\boxed{f(x) = x^2}"),
    ("4", "\\boxed{2+2=4}"),
    ("\\theta = 30", "30"),
    ("12", "\\boxed{12 \\text{ cm}}"),
    ("12", "\\boxed{12\\,\\mathrm{cm}^2}"),
    ("12", "The answer is 12 apples."),
    ("12 cm", "\\boxed{0.12\\text{ m}}"),
    ("5", "\\boxed{\\$5}"),
    ("5", "The answer is $5."),
    ("5", "\\boxed{5 \\text{ dollars}}"),
    ("5 dollars", "\\boxed{500\\text{ cents}}"),
    ("90^\\circ", "90"),
    ("90", "90°"),
    ("90", "The answer is 90 degrees."),
    ("60", "\\boxed{60 \\text{ km/h}}"),
    ("1 hour", "\\boxed{60\\text{ minutes}}"),
    ("7", "7 square units"),
    ("5000000", "\\boxed{5 \\text{ million}}"),
    ("18", "She makes $18 every day.\n#### 18"),
    ("18", "#### $18"),
    ("10", "\\boxed{10 \\text{ m/s}}"),
    ("10", "10 m"),
    ("(1,2)", "\\boxed{(1, 2)}"),
    ("(1,2)", "\\boxed{\\left(1,2\\right)}"),
    ("(1/2, 3)", "\\boxed{(0.5, 3)}"),
    ("1,2", "\\boxed{2, 1}"),
    ("\\{1,2,3\\}", "\\boxed{1,2,3}"),
    ("1 and 2", "\\boxed{1,2}"),
    ("x=1, x=2", "\\boxed{1, 2}"),
    ("\\pm 3", "\\boxed{3, -3}"),
    ("1 \\pm \\sqrt{2}", "\\boxed{1+\\sqrt2, 1-\\sqrt2}"),
    ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "\\boxed{(1,2)}"),
    (
        "\\begin{pmatrix} 1 & 2\\\\ 3&4 \\end{pmatrix}",
        "\\boxed{\\begin{bmatrix} 1 & 2\\\\ 3&4 \\end{bmatrix}}",
    ),
    ("(2,4)", "(2,4)"),
    ("[2,5)", "[2,5)"),
    ("\\frac{1}{\\sqrt2}", "\\boxed{\\frac{\\sqrt{2}}{2}}"),
    ("\\sqrt{12}", "\\boxed{2\\sqrt{3}}"),
    ("sqrt(12)", "\\boxed{2\\sqrt{3}}"),
    ("\\frac{\\pi}{2}", "pi/2"),
    ("x^2+2x+1", "\\boxed{(x+1)^2}"),
    ("(x+1)(x-1)", "\\boxed{x^2-1}"),
    ("9a+11", "11+9a"),
    ("\\log_2 8", "3"),
    ("e^{\\ln 3}", "3"),
    ("3+4i", "4i+3"),
    ("y=2x+1", "\\boxed{2x-y+1=0}"),
    ("x^2+y^2=1", "\\boxed{y^2 + x^2 - 1 = 0}"),
    ("\\sqrt[3]{8}", "2"),
    ("0.333333", "1/3"),
    ("3.1415927", "\\pi"),
    ("0.1+0.2", "0.3"),
    ("0.30000000000000004", "0.3"),
    ("0.\\overline{3}", "\\frac13"),
    ("2^{10}", "1024"),
    ("\\binom{5}{2}", "10"),
    ("3:4", "3/4"),
    ("2x", "\\boxed{x\\cdot 2}"),
    ("\\tan x", "\\frac{\\sin x}{\\cos x}"),
    ("\\infty", "\\boxed{\\infty}"),
    ("-\\infty", "-\\infty"),
    ("Yes", "\\boxed{\\text{yes}}"),
    ("Evelyn", "\\boxed{\\text{Evelyn}}"),
    ("no solution", "\\boxed{\\text{No solution}}"),
    ("three", "3"),
    ("\\emptyset", "\\varnothing"),
    ("odd", "\\boxed{\\text{odd}}"),
    ("Monday", "The answer is Monday."),
    ("73", "**73**"),
    ("73", "Final Answer: **73**"),
    ("73", "**Answer:** 73"),
    ("73", "**Final Answer**\n\n73"),
    ("73", "The final answer is $73$."),
    ("73", "Therefore, the answer is $\\boxed{73}$."),
    ("73", "so we get 70 + 3 = 73."),
    ("3.5", "The answer is 3.5."),
    (".5", "1/2"),
    ("5.", "5"),
    ("100", "1e2"),
    ("008", "8"),
    ("2.50", "2.5"),
    ("5^{5^{5^{5^{5}}}}", "\\boxed{5^{5^{5^{5^{5}}}}}"),
    ("$\\frac{3}{5}$", "0.6"),
    ("\\frac35", "3/5"),
    ("\\dfrac{3}{5}", "\\tfrac35"),
    ("(3)/(5)", "3/5"),
    ("x \\in \\{1,2\\}", "1, 2"),
    ("[1,2,3]", "1,2,3"),
    ("$1{,}000$", "1000"),
    ("-\\frac{\\sqrt{3}}{2}", "-\\sqrt{3}/2"),
    ("2\\sqrt{3}", "2*sqrt(3)"),
    ("x**2", "x^2"),
    ("5\\text{ cm}", "5"),
    ("11", "\\boxed{11 \\text{ people}}"),
    ("3/2 hours", "1.5"),
    ("n = 7", "7"),
    ("\\text{(A)}", "A"),
    ("$A$", "A"),
    ("1000000", "1{,}000{,}000"),
    ("1,234,567", "\\boxed{1{,}234{,}567}"),
    ("1 234", "1234"),
    ("12,000", "\\$12{,}000"),
    ("70000", "70,000.00"),
    ("3.14", "\\boxed{3.14}"),
    ("0.25", "25%"),
    ("25\\%", "0.25"),
    ("0.5", "\\boxed{50 \\%}"),
    ("0.5", "$50\\%$"),
    ("12.5\\%", "12.5"),
    ("100%", "1"),
    ("150%", "1.5"),
    ("0.5", "50 percent"),
    ("5%", "0.05"),
    ("20\\%", "\\boxed{20}"),
    ("7/4", "1 \\frac{3}{4}"),
    ("1.75", "1\\tfrac{3}{4}"),
    ("1\\frac{3}{4}", "7/4"),
    ("-7/4", "-1\\frac{3}{4}"),
    ("5 1/3 hours", "16/3"),
    ("3\\dfrac{1}{2}", "3.5"),
    ("-3", "\\boxed{-3.0}"),
    ("-3", "$-3$"),
    ("\u22125", "-5"),
    ("-1/2", "-\\dfrac12"),
    ("-\\frac{1}{2}", "-.5"),
    ("-0.5", "- 1/2"),
    ("1.2e-5", "0.000012"),
    ("3\\times10^8", "300000000"),
    ("3 x 10^8", "3e8"),
    ("1.0E3", "1000"),
    ("10^6", "1000000"),
    ("5\\cdot 10^{-3}", "0.005"),
    ("\\frac{1}{2006!}", "\\boxed{\\frac{1}{2006!}}"),
    ("2^{100}", "2^{99}\\cdot 2"),
    ("100!/98!", "9900"),
    ("\\frac{100!}{98!}", "9900"),
    ("5^{5^{5}}", "5^{3125}"),
    ("C", "\\boxed{\\textbf{C}}"),
    ("C", "\\boxed{C) \\ 5}"),
    ("C", "**C**"),
    ("C", "The answer is \\text{(C)}"),
    ("C", "(C) 12"),
    ("C", "\\boxed{\\text{C. } x^2}"),
    ("(C)", "C."),
    ("C", "Answer: C"),
    ("C", "I choose option C."),
    ("B", "Option B"),
    ("7", "so \\boxed{7}. Check: 7 = 7. Thus $\\boxed{7}$"),
    ("7", "\\boxed{x=7}"),
    ("7", "<answer> $7$ </answer>"),
    ("7", "<answer>\\(7\\)</answer>"),
    ("42", "\\boxed{42}</answer>"),
    ("42", "\\boxed{ 42 }"),
    ("42", "\\boxed{$42$}"),
    ("3", "**3**."),
    ("3", "Answer: $3$"),
    ("3", "The answer is: 3"),
    ("3", "Final answer: \\(3\\)"),
    ("3", "the final answer is:\n\n$$3$$"),
    ("3", "Therefore the answer is\n\\[\n3\n\\]"),
    ("18", "### Answer\n18"),
    ("18", "A: 18"),
    ("[0,1]", "0\\leq x\\leq 1"),
    ("[0,1]", "\\boxed{x \\in [0,1]}"),
    ("(2,\\infty)", "x > 2"),
    ("x > 2", "2 < x"),
    ("(-\\infty,0]\\cup[2,\\infty)", "x\\le 0 \\text{ or } x\\ge 2"),
    ("(0,1)", "0<y<1"),
    ("\\left(0,\\frac{1}{2}\\right)", "(0, 0.5)"),
    ("[-2, 2]", "-2 \\leqslant x \\leqslant 2"),
    ("(-\\infty,\\infty)", "\\mathbb{R}"),
    ("x\\neq 3", "x \\ne 3"),
    ("y=2x+3", "2x+3"),
    ("x = 4", "x=4.0"),
    ("a=1,b=2", "(1,2)"),
    ("k = \\frac{1}{2}", "0.5"),
    ("m=2, n=3", "n=3, m=2"),
    ("15 \\text{ cm}^2", "15"),
    ("15 cm^2", "15\\text{ cm}^{2}"),
    ("15 square cm", "15 cm^2"),
    ("3 m", "300 cm"),
    ("2 hours", "120 min"),
    ("1.5 kg", "1500 g"),
    ("45^\\circ", "45"),
    ("45^{\\circ}", "45 degrees"),
    ("$5.50", "5.5"),
    ("5.50 dollars", "$5.5"),
    ("30 mph", "30"),
    ("30 miles per hour", "30"),
    ("7 days", "7"),
    ("1 week", "7 days"),
    ("25 \\mathrm{~cm}", "25"),
    ("4 \\mathrm{~km} / \\mathrm{h}", "4"),
    ("10 units", "10"),
    ("120 \\text{ square feet}", "120"),
    ("5 apples", "5 apples"),
    ("(3,-1)", "\\boxed{(3, -1)}"),
    ("(3, \\frac{\\pi}{2})", "\\left(3, \\pi/2\\right)"),
    ("\\{1, 2, 3\\}", "\\{3,2,1\\}"),
    ("1, 2, 3", "3, 1, and 2"),
    ("2 and 5", "5, 2"),
    ("x=2 or x=5", "2, 5"),
    ("2,5", "x = 2 \\text{ or } x = 5"),
    ("\\{2\\}", "2"),
    (
        "\\begin{bmatrix}1&2\\\\3&4\\end{bmatrix}",
        "\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}",
    ),
    ("\\langle 1,2,3\\rangle", "(1,2,3)"),
    ("\\frac{\\sqrt{3}}{3}", "\\frac{1}{\\sqrt{3}}"),
    ("\\sqrt{50}", "5\\sqrt{2}"),
    ("2\\pi", "2 pi"),
    ("\\pi/4", "\\frac{1}{4}\\pi"),
    ("e^2", "\\exp(2)"),
    ("\\ln 4", "2\\ln 2"),
    ("x(x+1)", "x^2+x"),
    ("\\frac{x^2-1}{x-1}", "x+1"),
    ("\\cos(2x)", "1-2\\sin^2 x"),
    ("a^2-b^2", "(a-b)(a+b)"),
    ("\\frac{n(n+1)}{2}", "\\frac{n^2+n}{2}"),
    ("4i+3", "3+4i"),
    ("-i", "\\frac{1}{i}"),
    ("2^{x+1}", "2\\cdot 2^x"),
    ("3x-y=2", "y=3x-2"),
    ("\\binom{10}{3}", "120"),
    ("\\sqrt{16}", "4"),
    ("|\u22125|", "5"),
    ("\\lfloor 3.7\\rfloor", "3"),
    ("\\sum_{k=1}^{10} k", "55"),
    ("0.142857142857", "1/7"),
    ("1.4142135", "\\sqrt{2}"),
    ("2.718281828", "e"),
    ("True", "true"),
    ("Yes", "Yes."),
    ("infinity", "\\infty"),
    ("No real solutions", "no real solutions"),
    ("Tuesday", "\\boxed{\\text{Tuesday}}"),
    ("impossible", "Impossible"),
    ("undefined", "\\text{undefined}"),
    ("3 \\text{ and } 4", "3,4"),
    ("2:3", "2/3"),
    ("3:30", "3:30"),
    ("10:30 am", "10:30 AM"),
    ("A and C", "A, C"),
    ("ACD", "ACD"),
    ("12_{8}", "12_8"),
    ("0", "0.0"),
    ("0", "-0"),
    ("0", "\\frac{0}{5}"),
    ("1", "0.\\overline{9}"),
    ("1/3", "0.\\overline{3}"),
    ("x^{2}", "x\xb2"),
    ("\\sqrt{3}", "\u221a3"),
    ("\xbd", "0.5"),
    ("5\\%", "5 \\%"),
    ("2\\cdot 3^5", "486"),
    ("6x^2", "6 x^{2}"),
    ("(a+b)^2", "a^2+2ab+b^2"),
    ("p-q", "-q+p"),
    ("\\dfrac{7}{25}", "7/25"),
    ("\\text{6}", "6"),
    ("\\mathbf{6}", "6"),
    ("6\\\\", "6"),
    ("6.", "6"),
    ("6 \\quad", "6"),
    ("0.5", "The answer is 50%"),
    ("0.5", "so the probability is 50\\%."),
    ("1/2", "The probability is $\\frac{1}{2}$."),
    ("42", "Answer is 42"),
    ("42", "ANSWER: 42"),
    ("42", "The final answer is 42, since 6*7=42."),
    ("42", "answer = 42"),
    ("42", "So, the correct answer is: **42**"),
    ("11/6", "1 + 5/6"),
    ("2.5", "Final answer: 2 1/2"),
    ("-7", "Final answer: \u22127"),
    ("1e3", "Final answer: 1,000"),
    ("0.001", "1 \\times 10^{-3}"),
    ("E", "Final answer: (E)"),
    ("E", "\\boxed{\\textbf{(E) }}"),
    ("E", "The answer is E."),
    ("A", "\\boxed{A}"),
    ("D", "\\boxed{\\mathbf{D}}"),
    ("B", "<answer>(B)</answer>"),
    ("7", "The first try gives 5. <answer>5</answer> wrong. <answer>7</answer>"),
    ("\\frac{3}{4}", "<answer>\\frac{3}{4}</answer>"),
    ("42", "<answer>42</answer> more words 99"),
    ("x=3", "<answer>3</answer>"),
    ("\\sqrt{\\frac{a}{b}}", "\\boxed{\\sqrt{\\frac{a}{b}}}"),
    ("\\frac{1}{1+\\frac{1}{2}}", "\\boxed{\\frac{2}{3}}"),
    ("12", "12cm"),
    ("12", "12\\text{cm}"),
    ("12", "\\boxed{12~\\text{cm}}"),
    ("36\\pi", "\\boxed{36\\pi \\text{ cm}^3}"),
    ("36\\pi", "36\u03c0"),
    ("90", "\\boxed{90^{\\circ}}"),
    ("72", "72 degrees"),
    ("5", "\\boxed{5\\text{ hours}}"),
    ("100", "\\boxed{\\text{100 m}}"),
    ("100", "\\text{100}"),
    ("(-\\infty,5]", "x \\leq 5"),
    ("x \\leq 5", "(-\\infty, 5]"),
    ("[1,4)", "[1, 4)"),
    ("(1,4)", "1<x<4"),
    ("(1,4)", "4>x>1"),
    ("(1,2)", "\\boxed{(1,2)}"),
    ("(1,2)", "x=1, y=2"),
    ("\\{-1,1\\}", "\\pm 1"),
    ("-1,1", "x=\\pm 1"),
    ("1,2", "\\{1,2\\}"),
    ("4", "\\boxed{4} \\boxed{4}"),
    ("4", "\\boxed{04}"),
    ("4", "\\boxed{4.000}"),
    ("73", "**Final Answer:** 73"),
    ("73", "**Final Answer: 73**"),
    ("73", "Final Answer: 73."),
    ("73", "Final Answer: $\\boxed{73}$"),
    ("73", "*73*"),
    ("73", "`73`"),
    ("73", "The answer is **73 apples**."),
    ("8", "= 8"),
    ("8", "\\boxed{=8}"),
    ("10", "ten"),
    ("6.5", "6\\frac{1}{2}"),
    ("13/2", "6.5"),
    ("\\frac{13}{2}", "$6\\frac{1}{2}$"),
    ("3/8", "0.375"),
    ("0.375", "37.5\\%"),
    ("37.5\\%", "3/8"),
    ("66\\frac{2}{3}\\%", "2/3"),
    ("1.5", "3:2"),
    ("17", "1.7e1"),
    ("17", "seventeen"),
    ("1,000,000", "10^6"),
    ("1 million", "1000000"),
    ("\\$1.2 million", "1200000"),
    ("\\frac{x}{2}", "0.5x"),
    ("2^{-1}", "0.5"),
    ("\\sqrt[3]{27}", "3"),
    ("\\log_{10} 100", "2"),
    ("\\ln(e)", "1"),
    ("5!", "120"),
    ("\\frac{6!}{3!}", "120"),
    ("\\left(\\frac{1}{2}\\right)^2", "1/4"),
    ("\\left[-1,1\\right]", "[-1,1]"),
    ("x+y", "y+x"),
    ("x\\ge1", "[1,\\infty)"),
    ("\\frac{2}{\\sqrt{3}}", "\\frac{2\\sqrt{3}}{3}"),
]
DIFFERENT = [
    ("123", "\\boxed{1,2,3}"),
    ("1234", "\\boxed{1.234}"),
    ("12", "\\boxed{1,2}"),
    ("0.5", "\\boxed{0.5\\%}"),
    ("0.5", "\\boxed{5\\%}"),
    ("50", "0.5"),
    ("5", "\\boxed{50\\%}"),
    ("1/2", "\\boxed{2\\frac{1}{2}}"),
    ("11/6", "1 6/5"),
    ("3", "-3"),
    ("1/2", "\\boxed{-\\frac12}"),
    ("1000", "1e4"),
    ("1e-10", "2e-10"),
    ("0", "1e-10"),
    ("1e-30", "\\boxed{10^{-31}}"),
    ("1000000", "1000001"),
    ("123456789", "123456788"),
    ("\\frac{1}{2004!}", "0"),
    ("2004!", "2006!"),
    ("0.0001", "0.0002"),
    ("0.33", "1/3"),
    ("3.14", "\\pi"),
    ("1.41", "\\sqrt2"),
    ("10^{-20}", "10^{-21}"),
    ("\\sqrt{2}\\cdot 10^{-20}", "\\sqrt{3}\\cdot 10^{-20}"),
    ("5", "\\boxed{5^{5^{5^{5^{5^5}}}}}"),
    ("1", "\\boxed{(10^{10})!}"),
    ("5", "\\boxed{((10^{10})!)!}"),
    ("E", "\\boxed{e}\\boxed{D}"),
    ("E", "2.718281828"),
    ("A", "B"),
    ("A", "\\boxed{A, B}"),
    ("A", "\\boxed{\\text{A or B}}"),
    ("B", "\\boxed{\\text{(C) }42}"),
    ("", ""),
    ("", "\\boxed{}"),
    ("", "0"),
    ("0", ""),
    ("\\boxed{}", "\\boxed{}"),
    ("  ", "  "),
    ("$$", "$$"),
    ("", "The answer is 5"),
    ("42", "so \\boxed{42"),
    ("42", "<answer>42"),
    ("4", "\\boxed{4} or rather \\boxed{42"),
    ("42", "<think>the answer is \\boxed{42}"),
    ("5", "\\boxed{5} \\boxed{7}"),
    ("5", "\\boxed{5 \\text{ or } 7}"),
    ("5", "\\boxed{5, 7}"),
    ("5", "<answer>5</answer><answer>6</answer>"),
    ("(0,1)", "[0,1]"),
    ("(0,1)", "\\boxed{0\\le x<1}"),
    ("(0,1)", "\\boxed{0 < x < 2}"),
    ("(0,1)", "x>0"),
    ("(1,2)", "(2,1)"),
    ("(1,2)", "(1,2,3)"),
    ("1,2", "1,2,2"),
    ("\\{1,2\\}", "\\{1,3\\}"),
    ("x=3", "y=3"),
    ("3", "\\boxed{n=3k}"),
    ("3", "3k"),
    ("x=1,y=2", "x=2,y=1"),
    ("12 cm", "\\boxed{12\\text{ m}}"),
    ("12 cm", "12 kg"),
    ("1 hour", "30 minutes"),
    ("(1,2)", "\\{1,2\\}"),
    (
        "\\begin{pmatrix} 1 & 2\\\\ 3&4 \\end{pmatrix}",
        "\\begin{pmatrix} 1 & 3\\\\ 2&4 \\end{pmatrix}",
    ),
    ("x+1", "x+2"),
    ("x^2", "x^3"),
    ("x^2+y^2=1", "x^2+y^2=2"),
    ("\\sqrt{x^2}", "x"),
    ("yes", "no"),
    ("x", "y"),
    ("\\pm 3", "3"),
    ("1 \\pm 2", "3"),
    ("\\infty", "-\\infty"),
    ("10", "10_2 and 11"),
    ("1=1", "5"),
    ("5", "1=1"),
    ("7", "nan"),
    ("2", "1 or 2 or 3"),
    ("2,3", "23"),
    ("3/4", "4/3"),
    ("1:2", "2:1"),
    ("-5", "|-5|"),
    ("5", "I don't know"),
    ("no solution", "0"),
    ("1/0", "2/0"),
    ("4", "\\boxed{2+3}"),
    ("1234", "1,2,3,4"),
    ("1.234", "1,234"),
    ("123", "1.23"),
    ("0.5", "0.05"),
    ("25", "0.25"),
    ("0.25", "2.5%"),
    ("1", "1%"),
    ("7/4", "1 4/3"),
    ("14/3", "1 4/3 x"),
    ("-3", "3"),
    ("3", "-3.0"),
    ("1000", "100"),
    ("1e3", "1e-3"),
    ("2e5", "2e6"),
    ("1/2004!", "1/2005!"),
    ("10^{-100}", "0"),
    ("1e-300", "1e-301"),
    ("C", "D"),
    ("C", "\\boxed{\\text{D}}"),
    ("C", "A, B, C"),
    ("C", "C and D"),
    ("B", "8"),
    ("7", "\\boxed{5}, \\boxed{6}"),
    ("7", "\\boxed{7} ... \\boxed{8}"),
    ("7", "77"),
    ("7", "7x"),
    ("7", "70%"),
    ("(0,1)", "(0,1]"),
    ("[0,1]", "(0,1)"),
    ("(0,1)", "0<x"),
    ("x>2", "x<2"),
    ("x>2", "x\\ge 2"),
    ("(1,2)", "(2,1)"),
    ("(1,2,3)", "(1,3,2)"),
    ("1,2", "1,3"),
    ("\\{1,2\\}", "\\{1,2,3\\}"),
    ("12 cm", "12 kg"),
    ("2 hours", "2 minutes"),
    ("y=2x", "y=3x"),
    ("2x+1", "2x-1"),
    ("\\sqrt{2}", "\\sqrt{3}"),
    ("\\pi", "3.14"),
    ("\\pi", "22/7"),
    ("e", "\\pi"),
    ("x^2", "2x"),
    ("\\sin x", "\\cos x"),
    ("\\infty", "0"),
    ("yes", "no"),
    ("True", "False"),
    ("no solution", "1"),
    ("3:2", "2:3"),
    ("10", "1010_2"),
    ("5", "five hundred"),
    ("0", "no"),
    ("1", "\\text{}"),
    ("\\text{}", "\\text{}"),
    ("$", "$"),
    ("\\boxed{}", "5"),
    ("1000000.5", "1000001.5"),
    ("0.1", "0.10001"),
    ("99999", "100000"),
    ("3", "3.0001"),
    ("2/3", "0.67"),
    ("2/3", "0.666"),
    ("x", "-x"),
    ("|x|", "x"),
    ("f(x)=x", "f(x)=-x"),
    ("5", "\\sqrt{5}"),
    ("3\\sqrt{2}", "2\\sqrt{3}"),
    ("2^{100}", "2^{101}"),
    ("6", "3!!"),
    ("5", "\\boxed{9^{9^{9^{9}}}}"),
    ("1", "\\boxed{\\frac{9^{9^{9^{9}}}}{9^{9^{9^{9}}}+1}}"),
    ("2", "\\boxed{(((((9!)!)!)!)!)!}"),
    ("7", "\\boxed{\\sum_{n=1}^{10^{12}} \\frac{1}{n^2}}"),
    ("x", "\\boxed{(x+1)^{100000000}}"),
    ("7", "\\boxed{\\prod_{n=1}^{10^9} n}"),
    ("50", "0.5%"),
    ("0.5", "The answer is 5\\%"),
    ("11/6", "1 1/6"),
    ("-1/2", "1/-3"),
    ("-3", "\\boxed{3}"),
    ("1000", "1e2"),
    ("5", "Final answer: 5 or 6"),
    ("E", "\\boxed{\\text{F}}"),
    ("E", "\\text{Earth}"),
    ("(0,1)", "\\boxed{0 \\le x \\le 1}"),
    ("(1,2)", "x=2, y=1"),
    ("12", "12.5 cm"),
    ("90", "90\\pi"),
    ("36\\pi", "36"),
    ("73", "**74**"),
    ("905", "437 + 2*234 = 905.\n\nFinal Answer: **73**"),
    ("2004!", "2004"),
    ("(2004!)!", "(2006!)!"),
    ("10^{10^{10}}", "10^{10^{11}}"),
    ("\\frac{1}{10^{50}}", "0"),
    ("1e-20", "1e-21"),
    ("4", "4004"),
    ("4.004", "\\boxed{004}"),
    ("12", "1, 2"),
    ("2", "\\pm 2"),
    ("3", "\\{3,4\\}"),
    ("42", "\\boxed{42"),
    ("42", "\\boxed{\\frac{42}{"),
    ("", "\\boxed{}"),
    (" ", ""),
    ("5", "\\boxed{}"),
    ("5", "\\boxed{5}\\boxed{}"),
    ("5", "<answer></answer>"),
    ("x=3", "\\boxed{x=3, x=4}"),
    ("5", "5^5"),
    ("100000", "100001"),
    ("3.14159", "3.1416"),
    ("0.0000001", "0.0000002"),
]
HOPELESS = r"\boxed{\int_0^{\infty} e^{-x^{x^x}} dx}"
"""What no algebra system finishes in time."""

answers = st.one_of(
    st.integers(-999, 999).map(str),
    st.fractions(max_denominator=20).map(str),
    st.decimals(-99, 99, places=2).map(str),
    st.integers(0, 99).map("{}%".format),
    st.tuples(st.integers(-9, 9), st.integers(-9, 9)).map(str),
    st.sets(st.integers(0, 5), min_size=1).map(lambda s: r"\{" + ",".join(map(str, s)) + r"\}"),
    st.sampled_from([pair[0] for pair in SAME]),
    st.sampled_from([pair[1] for pair in DIFFERENT]),
)
_WORDS = ["1", "23", "4.5", "x", " ", "\n", "answer is", "<answer>", "</answer>", "\u00bd"]
_MACROS = [r"\frac", r"\sqrt", r"\boxed{", r"\text{", r"\left(", r"\{", r"\cup", "\\"]
pieces = st.sampled_from([*r"()[]{}^_%$&|=<>,;:.!*/+-", *_WORDS, *_MACROS])


@pytest.mark.parametrize(("gold", "prediction"), SAME)
def test_the_same_answer_written_otherwise(gold: str, prediction: str) -> None:
    """A false no teaches the policy that a right answer was wrong; the order never matters."""
    assert grade(gold, prediction)
    assert grade(prediction, gold)


@pytest.mark.parametrize(("gold", "prediction"), DIFFERENT)
def test_another_answer_is_another(gold: str, prediction: str) -> None:
    """A false yes pays for a wrong answer."""
    assert not grade(gold, prediction)
    assert not grade(prediction, gold)


@given(answers, answers)
@settings(max_examples=60, deadline=None)
def test_the_order_of_the_two_never_matters(a: str, b: str) -> None:
    """Libraries that grade by who comes first disagree with themselves."""
    assert grade(a, b) is grade(b, a)


@given(answers.filter(lambda text: bool(answer_of(text))))
@settings(max_examples=40, deadline=None)
def test_an_answer_equals_itself(answer: str) -> None:
    """Whether or not anything can read it."""
    assert grade(answer, answer)
    assert grade(answer, f"So the answer is \\boxed{{{answer_of(answer)}}}.")


@given(st.one_of(st.text(max_size=40), st.lists(pieces, max_size=14).map("".join)), answers)
@settings(max_examples=150, deadline=None)
def test_no_text_raises(text: str, answer: str) -> None:
    """A policy says anything."""
    assert isinstance(grade(answer, text, seconds=0.3), bool)
    assert isinstance(grade(text, f"\\boxed{{{text}}}", seconds=0.3), bool)


@pytest.mark.parametrize(
    "text", ["2^{9^{5}}", "2^{10^{5000}}", "(10^{5000})!", r"\binom{10^{5000}}{2}", "1e99999"]
)
def test_numbers_with_too_many_digits_are_only_themselves(text: str) -> None:
    """Python refuses to write out what is longer than 4300 digits, error messages included."""
    assert grade(text, f"\\boxed{{{text}}}")
    assert not grade(text, "5")
    assert not grade(f"{text}+1", text)


@pytest.mark.parametrize("unit", ["(", "{", "\\frac{", "1+", "-", "$", r"\(", "9", "1 ", "a b "])
@pytest.mark.parametrize("frame", ["{}", "\\boxed{{{}}}", "The answer is {}"])
def test_long_and_deep_texts_are_graded_in_time(unit: str, frame: str) -> None:
    """No pattern takes quadratic time, and no recursion is unbounded."""
    start = time.perf_counter()
    for count in (300, 50_000):
        grade("5", frame.format(unit * count))

    assert time.perf_counter() - start < 4


def test_algebra_ends_at_its_deadline_and_works_afterwards() -> None:
    """The process that hangs is killed and replaced."""
    assert grade("2x", r"\boxed{x+x}")
    start = time.perf_counter()

    assert not grade("x", HOPELESS, seconds=0.5)
    assert time.perf_counter() - start < 4
    assert grade("2x", r"\boxed{x+x}")


def test_it_works_in_any_thread_and_event_loop() -> None:
    """No signals: those work in the main thread only."""

    async def in_loop() -> bool:
        return grade("3x", "x+2x")

    with ThreadPoolExecutor(4) as threads:
        in_threads = list(threads.map(lambda n: grade(f"{n}x", f"x+{n - 1}x"), range(2, 10)))
        in_loops = list(threads.map(lambda _: asyncio.run(in_loop()), range(2)))

    assert all(in_threads)
    assert all(in_loops)
    assert len(POOL.pids()) <= 2


def test_a_forked_child_has_processes_of_its_own() -> None:
    """Two users of one pipe would read each other's answers."""
    assert grade("2x", "x+x")
    child = os.fork()
    if child == 0:
        os._exit(0 if grade("3x", "x+2x") and not grade("3x", "x+x") else 1)

    assert os.waitpid(child, 0)[1] == 0
    assert grade("4x", "2x+2x")


@pytest.mark.slow
def test_no_process_outlives_the_pool() -> None:
    """Neither a closed pool nor the end of the interpreter leaves one behind."""
    pool = Pool(1)
    assert pool.same("2x", "x+x", tolerance=0.0, seconds=5)
    (pid,) = pool.pids()
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)

    code = (
        "from agentgym.envs.maths.grading import grade; from agentgym.envs.maths.grading.pool "
        "import POOL; assert grade('2x', 'x+x'); print(*POOL.pids())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


@pytest.mark.slow
def test_a_killed_caller_leaves_no_process() -> None:
    """Nobody is there to close anything then: the closed pipe does it."""
    code = (
        "import os, signal; from agentgym.envs.maths.grading import grade; "
        "from agentgym.envs.maths.grading.pool import POOL; grade('2x', 'x+x'); "
        "print(*POOL.pids(), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert _is_gone_within(10, int(done.stdout))


def _is_gone_within(seconds: float, pid: int) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        threading.Event().wait(0.05)
    return False
