"""Federated programs: loops over rounds that take data, run computations at the same time, release
results and go on where they were when they are killed.

    context = program.NativeFederatedContext(execution.LocalContext())
    with framework.get_context_stack().install(context):
        asyncio.run(my_program(...))

The names are those of `federated_language.program`; what has to do with files is Stator's, with the
names of TensorFlow Federated where it has the same.
"""

from __future__ import annotations

from stator.federated.program import (
    data_source,
    federated_context,
    logging_release_manager,
    memory_release_manager,
    native_platform,
    program_state_manager,
    release_manager,
    structure_utils,
    value_reference,
)
from stator.federated.program._archive import CorruptedFileError
from stator.federated.program._array_file_release_manager import ArrayFileReleaseManager
from stator.federated.program._client_data_source import (
    ClientDataSource,
    ClientDataSourceIterator,
)
from stator.federated.program._csv_file_release_manager import (
    CSVFileReleaseManager,
    CSVKeyFieldnameNotFoundError,
    CSVSaveMode,
)
from stator.federated.program._file_program_state_manager import (
    FileProgramStateManager,
    StructureMismatchError,
)
from stator.federated.program._tensorboard_release_manager import (
    TensorBoardNotFoundError,
    TensorBoardReleaseManager,
)
from stator.federated.program.data_source import (
    FederatedDataSource,
    FederatedDataSourceIterator,
)
from stator.federated.program.federated_context import (
    ComputationArg,
    FederatedContext,
    check_in_federated_context,
    contains_only_server_placed_data,
)
from stator.federated.program.logging_release_manager import LoggingReleaseManager
from stator.federated.program.memory_release_manager import MemoryReleaseManager
from stator.federated.program.native_platform import (
    NativeFederatedContext,
    NativeValueReference,
)
from stator.federated.program.program_state_manager import (
    ProgramStateExistsError,
    ProgramStateManager,
    ProgramStateNotFoundError,
    ProgramStateStructure,
    ProgramStateValue,
)
from stator.federated.program.release_manager import (
    DelayedReleaseManager,
    FilteringReleaseManager,
    GroupingReleaseManager,
    Key,
    NotFilterableError,
    PeriodicReleaseManager,
    ReleasableStructure,
    ReleasableValue,
    ReleasedValueNotFoundError,
    ReleaseManager,
)
from stator.federated.program.value_reference import (
    MaterializableStructure,
    MaterializableTypeSignature,
    MaterializableValue,
    MaterializableValueReference,
    MaterializedStructure,
    MaterializedValue,
    materialize_value,
)

__all__ = [
    "ArrayFileReleaseManager",
    "CSVFileReleaseManager",
    "CSVKeyFieldnameNotFoundError",
    "CSVSaveMode",
    "ClientDataSource",
    "ClientDataSourceIterator",
    "ComputationArg",
    "CorruptedFileError",
    "DelayedReleaseManager",
    "FederatedContext",
    "FederatedDataSource",
    "FederatedDataSourceIterator",
    "FileProgramStateManager",
    "FilteringReleaseManager",
    "GroupingReleaseManager",
    "Key",
    "LoggingReleaseManager",
    "MaterializableStructure",
    "MaterializableTypeSignature",
    "MaterializableValue",
    "MaterializableValueReference",
    "MaterializedStructure",
    "MaterializedValue",
    "MemoryReleaseManager",
    "NativeFederatedContext",
    "NativeValueReference",
    "NotFilterableError",
    "PeriodicReleaseManager",
    "ProgramStateExistsError",
    "ProgramStateManager",
    "ProgramStateNotFoundError",
    "ProgramStateStructure",
    "ProgramStateValue",
    "ReleasableStructure",
    "ReleasableValue",
    "ReleaseManager",
    "ReleasedValueNotFoundError",
    "StructureMismatchError",
    "TensorBoardNotFoundError",
    "TensorBoardReleaseManager",
    "check_in_federated_context",
    "contains_only_server_placed_data",
    "data_source",
    "federated_context",
    "logging_release_manager",
    "materialize_value",
    "memory_release_manager",
    "native_platform",
    "program_state_manager",
    "release_manager",
    "structure_utils",
    "value_reference",
]
