"""Figures of the PyTorch 2 paper (ASPLOS 2024), as rows of our tables: what stands beside ours in each of them.

Its machine is an A100; its suites are TorchBench, HuggingFace and TIMM. Where the table that they come from can't be
read with certainty, nothing stands here.
"""

#: table 1: fp32 inference
CAPTURE = [
    {
        "suite": "paper: TorchBench", "models": 80, "t_works": 74, "t_operators": "91.8 %", "t_graphs": 21.1,
        "t_none": 52, "t_few": 4, "t_many": 16, "script": "36/80",
    },
    {
        "suite": "paper: HuggingFace", "models": 46, "t_works": 46, "t_operators": "99.8 %", "t_graphs": 7.7,
        "t_none": 41, "t_few": 1, "t_many": 4, "script": "0/46",
    },
    {
        "suite": "paper: TIMM", "models": 62, "t_works": 62, "t_operators": "100 %", "t_graphs": 1,
        "t_none": 62, "t_few": 0, "t_many": 0, "script": "61/62",
    },
]  # fmt: skip
#: table 2: fp32 TorchBench, V100; what capture alone costs over eager
COST = [
    {"who": "paper: TorchDynamo", "inference": "5 %", "training": "1 %"},
    {"who": "paper: lazy tensors", "inference": "38 %", "training": "90 %"},
    {"who": "paper: lazy tensors, iterations overlapped", "inference": "31 %", "training": "86 %"},
]
#: table 3: A100, fp32 and fp16; geometric mean over eager (works/models)
_SPEED = [
    ("fp32 TorchDynamo alone", "0.95 74/74", "0.99 59/59", "1.01 44/46", "0.98 46/46", "1.00 62/62", "1.00 62/62"),
    ("fp32 TorchInductor", "2.73 74/74", "1.38 58/59", "1.47 44/46", "1.24 46/46", "2.48 62/62", "1.38 62/62"),
    ("fp16 TorchInductor", "2.59 74/74", "1.50 57/57", "1.91 43/45", "1.45 45/45", "2.77 60/60", "1.50 60/60"),
]
#: table 4: HuggingFace, fp16; geometric mean over eager in inference and training
_ABLATION = [
    ("all", 1.91, 1.45),
    ("without loop and layout reordering", 1.91, 1.28),
    ("without matmul templates", 1.85, 1.41),
    ("without parameter freezing", 1.85, 1.45),
    ("without pattern matching", 1.83, 1.45),
    ("without cudagraphs", 1.81, 1.37),
    ("without fusion", 1.68, 1.27),
    ("without inlining", 1.58, 1.31),
    ("without fusion and inlining", 0.80, 0.59),
]


def speed_rows():
    found = []
    for column, *cells in _SPEED:
        for i, suite in enumerate(("TorchBench", "HuggingFace", "TIMM")):
            for mode, cell in zip(("inference", "training"), cells[2 * i :]):
                mean, _, count = cell.partition(" ")
                works, _, models = count.partition("/")
                found.append({
                    "suite": f"paper: {suite}", "mode": mode, "column": column, "mean": float(mean),
                    "works": int(works), "models": int(models),
                })  # fmt: skip
    return found


def ablation_rows():
    whole = _ABLATION[0]
    return [
        {
            "who": f"paper: {who}", "inference": inference, "inference_less": round(inference - whole[1], 2) or None,
            "training": training, "training_less": round(training - whole[2], 2) or None,
        }
        for who, inference, training in _ABLATION
    ]  # fmt: skip
