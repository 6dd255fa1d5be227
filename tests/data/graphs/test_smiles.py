"""SMILES: what is read of atoms, bonds and rings, and how texts that are none are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.graphs.molecules import molecule_graph
from saccade.data.graphs.smiles import BadSmiles, parse_smiles

# SMILES, hydrogens of each atom, kinds of bonds, bonds in rings
READ = {
    "C": ([4], [], []),
    "CCO": ([3, 2, 1], ["single", "single"], [False, False]),
    "C=C": ([2, 2], ["double"], [False]),
    "C#N": ([1, 0], ["triple"], [False]),
    "[C-]#[O+]": ([0, 0], ["triple"], [False]),
    "[13CH4]": ([4], [], []),
    "[nH]1cccc1": ([1] * 5, ["aromatic"] * 5, [True] * 5),
    "C1CC1": ([2, 2, 2], ["single"] * 3, [True] * 3),
    "C%10CC%10": ([2, 2, 2], ["single"] * 3, [True] * 3),
    "C=1CCCCC=1": ([1, 2, 2, 2, 2, 1], ["single"] * 5 + ["double"], [True] * 6),
    "CC(=O)[O-]": ([3, 0, 0, 0], ["single", "double", "single"], [False] * 3),
    "[Na+].[Cl-]": ([0, 0], [], []),
    "c1ccccc1-c1ccccc1": ([1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1], None, None),
    "F/C=C/F": ([0, 1, 1, 0], ["single", "double", "single"], [False] * 3),
    "N[C@@H](C)C(=O)O": ([2, 1, 3, 0, 0, 1], None, [False] * 5),
    "CS(=O)(=O)C": ([3, 0, 0, 0, 3], None, [False] * 4),
    "BrCCl": ([0, 2, 0], ["single", "single"], [False, False]),
    "*C": ([0, 3], ["single"], [False]),
    "[Fe++]": ([0], [], []),
}
REFUSED = {
    "": (1, "an empty text", "an atom"),
    "C(": (2, "'(' is not closed", "a matching ')'"),
    "CC)": (3, "')' without '('", "an atom"),
    "C()C": (3, "an empty branch '()'", "an atom in it"),
    "(C)C": (1, "'(' not after an atom", "an atom"),
    "C1CC": (2, "ring 1 is not closed", "a second '1' after it"),
    "C%12CC": (2, "ring 12 is not closed", "a second '%12' after it"),
    "C%1C": (2, "'%1C'", "a ring number"),
    "C11": (3, "a ring of one atom", "another atom"),
    "C12CC12": (7, "a second bond between the same two atoms", "one bond"),
    "C=1CCCCC-1": (10, "ring 1 closes with '-'", "'=', with which it opens"),
    "CX": (2, "'X'", "an atom"),
    "[Xx]": (2, "'Xx'", "the symbol of an element"),
    "[CH": (1, "'[CH' without ]", "element"),
    "[C+x]": (1, "'[C+x]'", "element"),
    "C==C": (3, "a second bond '='", "an atom"),
    "C=": (2, "the bond '=' leads nowhere", "an atom after it"),
    "=C": (1, "the bond '=' before any atom", "an atom"),
    "1CC1": (1, "the ring number 1 before any atom", "an atom"),
    "C.": (2, "'.' at the end", "an atom"),
    ".C": (1, "'.' not after an atom", "an atom"),
    "C C": (2, "' '", "an atom"),
    "C(=)C": (4, "')' after the bond '='", "an atom"),
    "C²": (2, "'²'", "an atom"),
}


@pytest.mark.parametrize("text", READ)
def test_atoms_bonds_and_rings_are_read(text):
    molecule = parse_smiles(text)
    hydrogens, kinds, rings = READ[text]
    assert molecule.hydrogens() == hydrogens
    assert kinds is None or sorted(bond.kind for bond in molecule.bonds) == sorted(kinds)
    assert rings is None or molecule.ring_bonds() == rings


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_smiles_is_refused_with_its_place(text):
    with pytest.raises(BadSmiles) as error:
        parse_smiles(text)
    column, what, expected = REFUSED[text]
    assert (error.value.column, error.value.what) == (column, what) and expected in error.value.expected


def test_charges_isotopes_and_marks_are_kept():
    molecule = parse_smiles("[2H]/C(=C\\[O-])[N+2][C@@H](F)[Fe-3]")
    atoms = {atom.element: atom for atom in molecule.atoms}
    assert atoms["H"].isotope == 2 and atoms["O"].charge == -1 and atoms["N"].charge == 2 and atoms["Fe"].charge == -3
    assert [atom.chirality for atom in molecule.atoms if atom.chirality] == ["@@"]
    assert [bond.mark for bond in molecule.bonds if bond.mark] == ["/", "\\"]


def test_biphenyl_has_a_single_bond_between_its_rings():
    molecule = parse_smiles("c1ccccc1-c1ccccc1")
    bridge = [bond.kind for bond, ring in zip(molecule.bonds, molecule.ring_bonds(), strict=True) if not ring]
    assert bridge == ["single"] and len(molecule.bonds) == 13


@given(st.text(alphabet="CNOc1[]()=#+-.@H%2", max_size=12))
def test_any_text_is_read_or_refused(text):
    try:
        molecule = parse_smiles(text)
    except BadSmiles as error:
        assert 1 <= error.column <= len(text) + 1
        return
    assert molecule.atoms and len(molecule.hydrogens()) == len(molecule.atoms)
    assert all(0 <= bond.first != bond.second < len(molecule.atoms) for bond in molecule.bonds)


def test_a_molecule_is_a_graph_with_columns():
    graph = molecule_graph("CC(=O)O", label="1", origin="acids.csv:2")
    assert graph.nodes == ("C1", "C2", "O3", "O4") and graph.label == "1"
    assert graph.node_columns["element"] == ["C", "C", "O", "O"] and graph.node_columns["hydrogens"][3] == "1H"
    assert graph.edge_columns["bond"] == ["single", "double", "single"]
    assert len(graph.both_ways().source) == 6
