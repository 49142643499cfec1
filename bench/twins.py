"""Equal copies of one of the demo's models, each with its way to be called."""

import dataclasses


@dataclasses.dataclass
class Twin:
    """One copy of a model and how to call it: `call(**inputs)`; `optimizer` is None for inference."""

    model: object
    optimizer: object
    call: object

    def state(self):
        from bench.models import state_of

        return state_of(self.model, self.optimizer)


def make_twin(name, phase, tiny, wrap, double=False):
    """`wrap` makes of the module (of the whole step, in training) what is called. double: the model in float64."""
    import torch

    from bench.models import make_model, make_optimizer, make_training_step

    model = make_model(name, tiny=tiny, training=phase == "training")
    if double:
        model = model.double()
    if phase == "training":
        optimizer = make_optimizer(model)
        return Twin(model, optimizer, wrap(make_training_step(model, optimizer)))
    compiled = wrap(model)

    def call(**inputs):
        with torch.no_grad():
            return compiled(**inputs)

    return Twin(model, None, call)


def seeded(seed, call, **inputs):
    """Call with a fixed random state, so that dropout draws the same numbers in both twins."""
    import torch

    torch.manual_seed(seed)
    return call(**inputs)
