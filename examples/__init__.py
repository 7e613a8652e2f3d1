"""Programs that show Stator on real models. `examples.models` serves `bench` and the tests too."""
