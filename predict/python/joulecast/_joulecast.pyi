from typing import Any, Dict, List, Optional, Sequence, Union
from typing_extensions import CapsuleType, final

from ._figure import Figure

__all__ = [
    "Answer",
    "Network",
    "Prediction",
    "Table",
    "__version__",
    "compare",
    "describe",
    "gpus",
    "layouts",
    "map_table",
    "nets",
    "optimize",
    "plan",
    "predict",
    "program",
    "serve",
    "sweep",
]

__version__: str

@final
class Network:
    """A network that was read from memory. It is forgotten with the last reference to it."""

    def __new__(cls, content: Union[bytes, Sequence[int]], name: str, ending: str, unfolded: bool = False) -> Network: ...
    @property
    def name(self) -> str:
        """What it is called."""
    @property
    def source(self) -> str:
        """Where it came from: `file`, `onnx`, `prototxt` or `huggingface`."""
    @property
    def parameters(self) -> int:
        """Trained values."""
    @property
    def _typed(self) -> str: ...

@final
class Table:
    """Rows and columns, for whatever reads Arrow: `polars.DataFrame(table)`, `pyarrow.table(table)`, `duckdb.from_arrow`."""

    @property
    def num_rows(self) -> int:
        """How many rows it has."""
    @property
    def column_names(self) -> List[str]:
        """Names of its columns."""
    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> Dict[str, Any]:
        """A row as a dictionary; below zero from the end on."""
    def to_pylist(self, limit: Optional[int] = None) -> List[Dict[str, Any]]:
        """A dictionary for each row."""
    def __arrow_c_stream__(self, requested_schema: Optional[Any] = None) -> CapsuleType:
        """Arrow's C stream interface."""
    def _repr_html_(self) -> str: ...

@final
class Prediction:
    """Time, power, energy and memory of a step, with 90 % intervals. Names are those of the JSON document `prediction/1`; seconds,
    watts, joules, bytes."""

    @property
    def schema(self) -> str: ...
    @property
    def network(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def batch(self) -> int: ...
    @property
    def precision(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def framework(self) -> str: ...
    @property
    def launch(self) -> str: ...
    @property
    def host(self) -> Optional[Dict[str, Any]]: ...
    @property
    def gpu(self) -> str: ...
    @property
    def gpus(self) -> int: ...
    @property
    def devices(self) -> List[Dict[str, Any]]: ...
    @property
    def core_clock_mhz(self) -> float: ...
    @property
    def memory_clock_mhz(self) -> Optional[float]: ...
    @property
    def power_cap_w(self) -> Optional[float]: ...
    @property
    def calibration(self) -> Dict[str, str]: ...
    @property
    def time_s(self) -> float:
        """Seconds of a step."""
    @property
    def time_s_p05(self) -> float: ...
    @property
    def time_s_p95(self) -> float: ...
    @property
    def power_w(self) -> float:
        """Mean power of all boards, watts."""
    @property
    def power_w_p05(self) -> float: ...
    @property
    def power_w_p95(self) -> float: ...
    @property
    def energy_j(self) -> float:
        """Energy of all boards, joules."""
    @property
    def energy_j_p05(self) -> float: ...
    @property
    def energy_j_p95(self) -> float: ...
    @property
    def edp_js(self) -> float: ...
    @property
    def samples_per_s(self) -> float: ...
    @property
    def energy_per_sample_j(self) -> float: ...
    @property
    def samples_per_s_per_w(self) -> float: ...
    @property
    def waiting_s(self) -> float: ...
    @property
    def gflops_per_w(self) -> float: ...
    @property
    def ops(self) -> int: ...
    @property
    def read_bytes(self) -> int: ...
    @property
    def written_bytes(self) -> int: ...
    @property
    def ctc_ops_per_byte(self) -> Optional[float]: ...
    @property
    def parameters(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def verdict(self) -> Dict[str, Any]:
        """What it comes to, and how far to trust it."""
    @property
    def memory(self) -> Dict[str, int]: ...
    @property
    def fits_in_memory(self) -> bool: ...
    @property
    def bound_s(self) -> float:
        """The roofline, seconds."""
    @property
    def communication(self) -> Optional[Dict[str, Any]]: ...
    @property
    def input(self) -> Optional[Dict[str, Any]]: ...
    @property
    def training(self) -> Optional[Dict[str, Any]]: ...
    @property
    def phases(self) -> Dict[str, Dict[str, float]]: ...
    @property
    def layers(self) -> Table:
        """A row per kernel."""
    @property
    def warnings(self) -> List[str]:
        """What a reader should know of this prediction."""
    @property
    def layout(self) -> Optional[Dict[str, Any]]: ...
    @property
    def generation(self) -> Optional[Dict[str, Any]]: ...
    def to_dict(self) -> Dict[str, Any]:
        """The document `prediction/1`."""
    def to_json(self) -> str:
        """The document `prediction/1` as text."""
    def to_markdown(self, layers: bool = False) -> str:
        """A report in Markdown."""
    def plot(self) -> Figure:
        """Where time and energy go, layer by layer."""
    def _svg(self) -> str: ...
    def _repr_html_(self) -> str: ...

@final
class Answer:
    """An answer with a row per setting, GPU or candidate, which Arrow's readers take. The whole of it: `to_dict()`."""

    @property
    def table(self) -> Table:
        """A row per setting, GPU or candidate."""
    def __arrow_c_stream__(self, requested_schema: Optional[Any] = None) -> CapsuleType:
        """Arrow's C stream interface, of the table."""
    def to_dict(self) -> Dict[str, Any]:
        """The document, as `predict --format json` writes it."""
    def to_json(self) -> str:
        """The document as text."""
    def to_markdown(self) -> str:
        """A report in Markdown."""
    def plot(self) -> Figure:
        """Its figure."""
    def _repr_html_(self) -> str: ...

def predict(
    words: Sequence[str], batch: Union[int, str], power_limit: Optional[float], clock: Optional[float]
) -> Prediction: ...
def layouts(
    words: Sequence[str], batch: Union[int, str], power_limit: Optional[float], clock: Optional[float]
) -> Answer: ...
def sweep(words: Sequence[str], bar: Optional[Any]) -> Table: ...
def compare(words: Sequence[str]) -> Answer: ...
def optimize(words: Sequence[str]) -> Answer: ...
def serve(words: Sequence[str]) -> Answer: ...
def plan(words: Sequence[str], text: Optional[str]) -> Answer: ...
def describe(words: Sequence[str]) -> Table: ...
def map_table(table: Any, words: Sequence[str], workers: Optional[int], bar: Optional[Any]) -> Table: ...
def gpus() -> Table:
    """GPUs and processors: names, peaks, bandwidth, memory, limits, and what their layers' times rest on."""

def nets() -> Table:
    """Networks of the zoo: names, inputs, layers, parameters, multiply-accumulates of a sample."""

def program(words: Sequence[str]) -> int: ...
