"""SMILES: a strict parser of molecules written as a line of text (http://opensmiles.org/opensmiles.html).

Atoms in and outside brackets, isotopes, charges, hydrogens, bonds, rings, branches, parts separated by dots, and
aromaticity as written. Marks of stereochemistry are read and kept, not interpreted. RDKit is not used, even where it
is installed: the input of a model must not depend on a package that another machine may not have, and RDKit refuses
or rewrites molecules (valence, aromaticity) that the published tables contain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

ELEMENTS = frozenset(
    re.findall(
        "[A-Z][a-z]?",
        "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr "
        "Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir "
        "Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl "
        "Mc Lv Ts Og",
    )
)
# Atoms that need no brackets, with their usual valences.
ORGANIC = {"B": (3,), "C": (4,), "N": (3, 5), "O": (2,), "P": (3, 5), "S": (2, 4, 6)}
ORGANIC |= dict.fromkeys(("F", "Cl", "Br", "I"), (1,))
AROMATIC = frozenset(("b", "c", "n", "o", "p", "s", "se", "as", "te", "si"))
BONDS = {"-": 1.0, "=": 2.0, "#": 3.0, "$": 4.0, ":": 1.5, "/": 1.0, "\\": 1.0}
NAMES = {1.0: "single", 2.0: "double", 3.0: "triple", 4.0: "quadruple", 1.5: "aromatic"}
PLAIN = re.compile(r"Cl|Br|[BCNOPSFI]|[bcnops]|\*")
BRACKET = re.compile(
    r"\[(?P<isotope>\d{0,3})(?P<symbol>[A-Z][a-z]?|se|as|te|si|[bcnops]|\*)"
    r"(?P<chiral>@(?:@|TH[12]|AL[12]|SP[123]|TB\d{1,2}|OH\d{1,2})?)?"
    r"(?P<hydrogens>H\d?)?(?P<charge>\+\+|--|[+-]\d{0,2})?(?::(?P<number>\d{1,4}))?\]"
)
RING = re.compile(r"%\d\d|\d")
EXPECTED_ATOM = "an atom (such as C, N, c or [Na+])"


class BadSmiles(ValueError):
    """A text that is not SMILES: at which character, what is there and what was expected."""

    def __init__(self, column: int, what: str, expected: str) -> None:
        super().__init__(f"character {column}: {what}, expected {expected}")
        self.column, self.what, self.expected = column, what, expected


@dataclass(frozen=True)
class Atom:
    """An atom as written."""

    element: str
    aromatic: bool = False
    charge: int = 0
    hydrogens: int | None = None
    """None: as many as the valence asks for"""
    isotope: int = 0
    chirality: str = ""


@dataclass(frozen=True)
class Bond:
    """A bond between two atoms by their numbers; `mark` is / or \\ at a double bond."""

    first: int
    second: int
    order: float
    mark: str = ""

    @property
    def kind(self) -> str:
        return NAMES[self.order]


@dataclass(frozen=True)
class Molecule:
    """Atoms and bonds."""

    atoms: tuple[Atom, ...]
    bonds: tuple[Bond, ...]

    def hydrogens(self) -> list[int]:
        """Return the hydrogens of each atom that are not atoms of their own."""
        sums = [0.0] * len(self.atoms)
        for bond in self.bonds:
            for end in (bond.first, bond.second):
                sums[end] += 1 if bond.order == 1.5 else bond.order
        counts = []
        for atom, total in zip(self.atoms, sums, strict=True):
            needed = total + (1 if atom.aromatic else 0)
            fitting = [valence for valence in ORGANIC.get(atom.element, ()) if valence >= needed]
            implied = int(fitting[0] - needed) if fitting else 0
            counts.append(implied if atom.hydrogens is None else atom.hydrogens)
        return counts

    def ring_bonds(self) -> list[bool]:
        """Return for each bond whether it is part of a ring: whether its ends stay connected without it."""
        near: list[list[tuple[int, int]]] = [[] for _ in self.atoms]
        for number, bond in enumerate(self.bonds):
            near[bond.first].append((bond.second, number))
            near[bond.second].append((bond.first, number))
        in_ring = [True] * len(self.bonds)
        depth, lowest = [-1] * len(self.atoms), [0] * len(self.atoms)
        for root in range(len(self.atoms)):
            if depth[root] >= 0:
                continue
            depth[root] = lowest[root] = 0
            stack = [(root, -1, iter(near[root]))]
            while stack:
                atom, came_by, others = stack[-1]
                other, number = next(others, (-1, -1))
                if other < 0:
                    stack.pop()
                    if stack:
                        parent = stack[-1][0]
                        lowest[parent] = min(lowest[parent], lowest[atom])
                        in_ring[came_by] = lowest[atom] <= depth[parent]
                elif number != came_by and depth[other] < 0:
                    depth[other] = lowest[other] = depth[atom] + 1
                    stack.append((other, number, iter(near[other])))
                elif number != came_by:
                    lowest[atom] = min(lowest[atom], depth[other])
        return in_ring


@dataclass
class _Parser:
    text: str
    at: int = 0
    atoms: list[Atom] = field(default_factory=list)
    bonds: dict[tuple[int, int], Bond] = field(default_factory=dict)
    previous: int | None = None
    pending: tuple[str, int] | None = None  # a bond that waits for its atom, and where it is
    branches: list[tuple[int, int]] = field(default_factory=list)  # atom before "(", and where that is
    rings: dict[int, tuple[int, str, int]] = field(default_factory=dict)  # atom, bond and place of an open ring

    def parse(self) -> Molecule:
        if not self.text:
            raise BadSmiles(1, "an empty text", EXPECTED_ATOM)
        while self.at < len(self.text):
            self._next(self.text[self.at])
        if self.pending is not None:
            raise BadSmiles(self.pending[1] + 1, f"the bond '{self.pending[0]}' leads nowhere", "an atom after it")
        if self.branches:
            raise BadSmiles(self.branches[-1][1] + 1, "'(' is not closed", "a matching ')'")
        if self.rings:
            number, (_, _, at) = min(self.rings.items(), key=lambda ring: ring[1][2])
            raise BadSmiles(at + 1, f"ring {number} is not closed", f"a second '{_ring_text(number)}' after it")
        if self.previous is None:
            raise BadSmiles(len(self.text), "'.' at the end", EXPECTED_ATOM)
        return Molecule(tuple(self.atoms), tuple(self.bonds.values()))

    def _next(self, sign: str) -> None:
        if sign in BONDS:
            self._take_bond(sign)
        elif sign == "(":
            self._open_branch()
        elif sign == ")":
            self._close_branch()
        elif sign == ".":
            if self.previous is None or self.pending is not None:
                raise BadSmiles(self.at + 1, "'.' not after an atom", EXPECTED_ATOM)
            self.previous, self.at = None, self.at + 1
        elif sign.isdecimal() or sign == "%":
            self._take_ring()
        else:
            self._take_atom(sign)

    def _take_bond(self, sign: str) -> None:
        if self.previous is None:
            raise BadSmiles(self.at + 1, f"the bond '{sign}' before any atom", EXPECTED_ATOM)
        if self.pending is not None:
            raise BadSmiles(self.at + 1, f"a second bond '{sign}'", EXPECTED_ATOM)
        self.pending, self.at = (sign, self.at), self.at + 1

    def _open_branch(self) -> None:
        if self.previous is None or self.pending is not None:
            raise BadSmiles(self.at + 1, "'(' not after an atom", EXPECTED_ATOM)
        self.branches.append((self.previous, self.at))
        self.at += 1
        if self.text[self.at : self.at + 1] == ")":
            raise BadSmiles(self.at + 1, "an empty branch '()'", "an atom in it")

    def _close_branch(self) -> None:
        if not self.branches:
            raise BadSmiles(self.at + 1, "')' without '('", "an atom, a bond or the end")
        if self.pending is not None:
            raise BadSmiles(self.at + 1, f"')' after the bond '{self.pending[0]}'", EXPECTED_ATOM)
        self.previous, _ = self.branches.pop()
        self.at += 1

    def _take_ring(self) -> None:
        match = RING.match(self.text, self.at)
        if match is None or not match[0].isascii():
            raise BadSmiles(
                self.at + 1, f"'{self.text[self.at : self.at + 3]}'", "a ring number: one digit, or % and two"
            )
        if self.previous is None:
            raise BadSmiles(self.at + 1, f"the ring number {match[0]} before any atom", EXPECTED_ATOM)
        number, sign = int(match[0].lstrip("%")), self.pending[0] if self.pending else ""
        if number not in self.rings:
            self.rings[number] = (self.previous, sign, self.at)
        else:
            other, opened, _ = self.rings.pop(number)
            if sign and opened and BONDS[sign] != BONDS[opened]:
                raise BadSmiles(self.at + 1, f"ring {number} closes with '{sign}'", f"'{opened}', with which it opens")
            self._connect(other, self.previous, opened or sign)
        self.pending, self.at = None, match.end()

    def _take_atom(self, sign: str) -> None:
        if sign == "[":
            atom, end = self._bracket()
        else:
            match = PLAIN.match(self.text, self.at)
            if match is None:
                raise BadSmiles(self.at + 1, f"'{sign}'", EXPECTED_ATOM)
            symbol, end = match[0], match.end()
            atom = Atom(symbol.capitalize(), symbol.islower(), hydrogens=0 if symbol == "*" else None)
        self.atoms.append(atom)
        if self.previous is not None:
            self._connect(self.previous, len(self.atoms) - 1, self.pending[0] if self.pending else "")
        self.previous, self.pending, self.at = len(self.atoms) - 1, None, end

    def _bracket(self) -> tuple[Atom, int]:
        match = BRACKET.match(self.text, self.at)
        if match is None:
            end = self.text.find("]", self.at)
            shown = self.text[self.at : end + 1] if end >= 0 else self.text[self.at : self.at + 8]
            expected = "[isotope? element @? H? charge? :number?], such as [nH] or [13CH4] or [Fe+2]"
            raise BadSmiles(self.at + 1, f"'{shown}'{'' if end >= 0 else ' without ]'}", expected)
        symbol = match["symbol"]
        element = symbol.capitalize()
        if symbol != "*" and element not in ELEMENTS:
            at = match.start("symbol") + 1
            raise BadSmiles(at, f"'{symbol}'", "the symbol of an element")
        hydrogens = 0 if match["hydrogens"] is None else int(match["hydrogens"][1:] or 1)
        charge = _charge(match["charge"] or "")
        isotope, chirality = int(match["isotope"] or 0), match["chiral"] or ""
        return Atom(element, symbol in AROMATIC, charge, hydrogens, isotope, chirality), match.end()

    def _connect(self, first: int, second: int, sign: str) -> None:
        pair = (min(first, second), max(first, second))
        if first == second:
            raise BadSmiles(self.at + 1, "a ring of one atom", "a ring number at another atom")
        if pair in self.bonds:
            raise BadSmiles(self.at + 1, "a second bond between the same two atoms", "one bond between two atoms")
        both = self.atoms[first].aromatic and self.atoms[second].aromatic
        order = BONDS[sign] if sign else 1.5 if both else 1.0
        self.bonds[pair] = Bond(first, second, order, sign if sign in "/\\" else "")


def _charge(text: str) -> int:
    if text in ("++", "--"):
        return 2 if text == "++" else -2
    return int(text + "1") if text in ("+", "-") else int(text or 0)


def _ring_text(number: int) -> str:
    return str(number) if number < 10 else f"%{number}"


def parse_smiles(text: str) -> Molecule:
    """Return the molecule that a SMILES text describes; raises `BadSmiles`."""
    return _Parser(text).parse()
