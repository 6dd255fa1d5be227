"""Cost: time and money from FLOPs, the number of devices, their utilisation and their price."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.errors import UsageError
from saccade.planning.hardware import Device

UTILISATION = 0.3
"""default fraction of the peak that training reaches; published runs reach 0.2 to 0.5"""


@dataclass(frozen=True)
class Cluster:
    """Devices that work together."""

    device: Device
    count: int = 1
    utilisation: float = UTILISATION
    """fraction of the peak FLOP/s that the training reaches"""
    price: float = 0.0
    """dollars per device and hour; 0: not given"""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UsageError(f"devices must be at least 1, but is {self.count}")
        if not 0 < self.utilisation <= 1:
            raise UsageError(f"utilisation must be above 0 and at most 1, but is {self.utilisation}")
        if self.price < 0:
            raise UsageError(f"price must be 0 or more, but is {self.price}")

    def seconds(self, flops: float) -> float:
        """Return how long so many FLOPs take."""
        return flops / (self.count * self.device.flops * self.utilisation)

    def dollars(self, hours: float) -> float:
        """Return the price of so many hours: chips x hours x price."""
        return self.count * hours * self.price
