"""ALFWorld's vocabulary as data: types, what may hold what, and what can be done to what.

Names are spelt as in ALFWorld's task folders (`CounterTop`); texts show them in lower case.  The tables agree with
the facts of the official games.
"""

from __future__ import annotations

# What a receptacle of a type may hold.
_CONTAINS = {
    "ArmChair": "Book Box CellPhone Cloth CreditCard KeyChain Laptop Newspaper Pillow RemoteControl",
    "BathtubBasin": "Cloth DishSponge HandTowel SoapBar",
    "Bed": "BaseballBat BasketBall Book CellPhone Laptop Pillow TennisRacket",
    "Cabinet": (
        "Book Bowl Box CD Candle Cloth Cup DishSponge Glassbottle HandTowel Kettle Ladle Mug Newspaper Pan "
        "PepperShaker Plate Plunger Pot SaltShaker SoapBar SoapBottle SprayBottle TissueBox ToiletPaper Vase "
        "WateringCan WineBottle"
    ),
    "Cart": "Candle Cloth DishSponge HandTowel Plunger SoapBar SoapBottle SprayBottle TissueBox ToiletPaper",
    "CoffeeMachine": "Mug",
    "CoffeeTable": (
        "Book Bowl Box Candle CellPhone CreditCard KeyChain Laptop Newspaper Pen Pencil Plate RemoteControl Statue "
        "TissueBox Vase Watch WateringCan"
    ),
    "CounterTop": (
        "AlarmClock Apple Book Bowl Bread ButterKnife CD Candle CellPhone Cloth CreditCard Cup DishSponge Egg Fork "
        "Glassbottle HandTowel Kettle KeyChain Knife Ladle Laptop Lettuce Mug Pan Pen Pencil PepperShaker Plate Pot "
        "Potato RemoteControl SaltShaker SoapBar SoapBottle Spatula Spoon SprayBottle Statue TissueBox ToiletPaper "
        "Tomato Vase WineBottle"
    ),
    "Desk": (
        "AlarmClock BasketBall Book Bowl Box CD CellPhone Cloth CreditCard KeyChain Laptop Mug Pen Pencil "
        "RemoteControl Statue TennisRacket TissueBox Vase Watch WateringCan"
    ),
    "DiningTable": (
        "AlarmClock Apple BaseballBat BasketBall Book Bowl Box Bread ButterKnife CD Candle CellPhone Cloth CreditCard "
        "Cup DishSponge Egg Fork Glassbottle Kettle KeyChain Knife Ladle Laptop Lettuce Mug Newspaper Pan Pen Pencil "
        "PepperShaker Plate Pot Potato RemoteControl SaltShaker SoapBottle Spatula Spoon SprayBottle Statue "
        "TennisRacket TissueBox Tomato Vase Watch WateringCan WineBottle"
    ),
    "Drawer": (
        "Book ButterKnife CD Candle CellPhone Cloth CreditCard DishSponge Fork HandTowel KeyChain Knife Ladle "
        "Newspaper Pen Pencil PepperShaker RemoteControl SaltShaker SoapBar SoapBottle Spatula Spoon SprayBottle "
        "TissueBox ToiletPaper Watch WateringCan"
    ),
    "Dresser": (
        "AlarmClock BasketBall Book Bowl Box CD Candle CellPhone Cloth CreditCard KeyChain Laptop Mug Newspaper Pen "
        "Pencil Plate RemoteControl SprayBottle Statue TennisRacket TissueBox ToiletPaper Vase Watch WateringCan"
    ),
    "Fridge": "Apple Bowl Bread Cup Egg Glassbottle Lettuce Mug Pan Plate Pot Potato Tomato WineBottle",
    "GarbageCan": (
        "Apple Bread CD Cloth DishSponge Egg HandTowel Lettuce Newspaper Pen Pencil Potato SoapBar SoapBottle "
        "SprayBottle TissueBox ToiletPaper Tomato WineBottle"
    ),
    "HandTowelHolder": "HandTowel",
    "LaundryHamper": "Cloth",
    "Microwave": "Apple Bowl Bread Cup Egg Glassbottle Mug Plate Potato Tomato",
    "PaintingHanger": "",
    "Ottoman": "Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl",
    "Safe": "CD CellPhone CreditCard KeyChain Statue Vase Watch",
    "Shelf": (
        "AlarmClock Book Bowl Box CD Candle CellPhone Cloth CreditCard Cup DishSponge Glassbottle HandTowel Kettle "
        "KeyChain Mug Newspaper Pen Pencil PepperShaker Plate Pot RemoteControl SaltShaker SoapBar SoapBottle "
        "SprayBottle Statue TissueBox ToiletPaper Vase Watch WateringCan WineBottle"
    ),
    "SideTable": (
        "AlarmClock Apple BaseballBat BasketBall Book Bowl Box Bread ButterKnife CD Candle CellPhone Cloth CreditCard "
        "Cup DishSponge Egg Fork HandTowel Kettle KeyChain Knife Laptop Lettuce Mug Newspaper Pan Pen Pencil "
        "PepperShaker Plate Pot Potato RemoteControl SaltShaker SoapBar SoapBottle Spatula Spoon SprayBottle Statue "
        "TennisRacket TissueBox ToiletPaper Tomato Vase Watch WateringCan WineBottle"
    ),
    "SinkBasin": (
        "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Glassbottle HandTowel Kettle Knife Ladle Lettuce Mug "
        "Pan Plate Pot Potato SoapBar Spatula Spoon Tomato"
    ),
    "Sofa": "Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl",
    "StoveBurner": "Kettle Pan Pot",
    "TVStand": "TissueBox",
    "Toaster": "",
    "Toilet": "Candle Cloth DishSponge HandTowel SoapBar SoapBottle SprayBottle TissueBox ToiletPaper",
    "ToiletPaperHanger": "ToiletPaper",
    "TowelHolder": "Towel",
}
CONTAINS: dict[str, frozenset[str]] = {name: frozenset(objects.split()) for name, objects in _CONTAINS.items()}
OPENABLE = frozenset("Cabinet Drawer Fridge Microwave Safe".split())
CLEANABLE = frozenset(
    (
        "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Kettle Knife Ladle Lettuce Mug Pan Plate Pot "
        "Potato SoapBar Spatula Spoon Tomato"
    ).split()
)
HEATABLE = frozenset("Apple Bread Cup Egg Mug Plate Potato Tomato".split())
COOLABLE = frozenset("Apple Bowl Bread Cup Egg Lettuce Mug Pan Plate Pot Potato Tomato WineBottle".split())
SLICEABLE = frozenset("Apple Bread Egg Lettuce Potato Tomato".split())
TOGGLEABLE = frozenset("DeskLamp FloorLamp".split())
CARRIERS = frozenset("Bowl Box Cup Mug Pan Plate Pot".split())

OBJECTS = tuple(sorted(frozenset().union(*CONTAINS.values())))
RECEPTACLES = tuple(sorted(CONTAINS))
# Things that games place in a room although no receptacle rule names them; they can be seen, some can be taken.
SCENERY = tuple(
    (
        "Bathtub Blinds Boots Chair Curtains DeskLamp FloorLamp Footstool HousePlant LaundryHamperLid LightSwitch Mirror "
        "Painting PaperTowel PaperTowelRoll Poster ScrubBrush ShowerDoor ShowerGlass Sink StoveKnob TeddyBear Television "
        "ToiletPaperRoll Towel Window"
    ).split()
)
LARGEST_NUMBER = 30  # the most alike things that an official game numbers is 27
