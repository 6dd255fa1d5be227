"""Molecules: the graph of a SMILES text, with what is written of each atom and bond as columns."""

from __future__ import annotations

import numpy as np

from saccade.data.graphs.graph import Graph, Value
from saccade.data.graphs.smiles import Molecule, parse_smiles

STRENGTH = ("", "single", "aromatic", "double", "triple", "quadruple")  # of bonds


def molecule_graph(text: str, *, label: str = "", origin: str = "") -> Graph:
    """Return the graph of a molecule: atoms are nodes, bonds edges; raises `BadSmiles`."""
    molecule = parse_smiles(text.strip())
    ends = np.array([(bond.first, bond.second) for bond in molecule.bonds], dtype=np.int64).reshape(-1, 2)
    ring = molecule.ring_bonds()
    edges: dict[str, list[Value]] = {
        "bond": [bond.kind for bond in molecule.bonds],
        "ring_bond": ["yes" if inside else "no" for inside in ring],
        "direction": [bond.mark or "none" for bond in molecule.bonds],
    }
    nodes = tuple(f"{atom.element}{number}" for number, atom in enumerate(molecule.atoms, 1))
    columns = _atoms(molecule, ends, ring)
    return Graph(nodes, ends[:, 0], ends[:, 1], columns, edges, label=label, origin=origin, text=text.strip())


def _atoms(molecule: Molecule, ends: np.ndarray, ring: list[bool]) -> dict[str, list[Value]]:
    """Return the columns of the atoms, all of them categories."""
    in_ring = {int(atom) for pair, inside in zip(ends, ring, strict=True) if inside for atom in pair}
    bonds = np.bincount(ends.reshape(-1), minlength=len(molecule.atoms))
    kinds: dict[int, str] = {}
    for bond in molecule.bonds:  # the strongest bond says how an atom is hybridized
        for atom in (bond.first, bond.second):
            kinds[atom] = max(kinds.get(atom, ""), bond.kind, key=STRENGTH.index)
    return {
        "element": [atom.element for atom in molecule.atoms],
        "aromatic": ["yes" if atom.aromatic else "no" for atom in molecule.atoms],
        "charge": [f"{atom.charge:+d}" if atom.charge else "none" for atom in molecule.atoms],
        "hydrogens": [f"{count}H" for count in molecule.hydrogens()],
        "bonds": [f"{count}b" for count in bonds.tolist()],
        "strongest": [kinds.get(atom, "none") for atom in range(len(molecule.atoms))],
        "ring": ["yes" if atom in in_ring else "no" for atom in range(len(molecule.atoms))],
        "chirality": [atom.chirality or "none" for atom in molecule.atoms],
        "isotope": [f"{atom.isotope}i" if atom.isotope else "none" for atom in molecule.atoms],
    }
