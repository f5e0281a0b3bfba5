"""Chakra's public schema, declared with google.protobuf, whose own encoder then writes the traces that tests read.

Names and numbers are those of mlcommons/chakra: `schema/protobuf/et_def.proto` as first published there ("0.0.4": no
storage operations) and as of 2026 ("1.0": storage, batch and checkpoint operations). An earlier draft had the
attributes of the metadata message under number 1, which is "draft".
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.encoder import _VarintBytes

FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = ("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64",
           "sfixed32", "sfixed64", "bool", "string", "bytes")  # fmt: skip
NODE_TYPES = ("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
              "COMM_RECV_NODE", "COMM_COLL_NODE", "STORAGE_NODE", "BATCH_NODE", "CHECKPOINT_NODE")  # fmt: skip
COLLECTIVES = ("ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL", "REDUCE_SCATTER",
               "REDUCE_SCATTER_BLOCK", "BARRIER")  # fmt: skip
VERSIONS = ("draft", "0.0.4", "1.0")


class Schema:
    """The messages of one version: `schema.node(...)`, `schema.metadata(...)`, `schema.attribute(...)`."""

    def __init__(self, version: str) -> None:
        file = descriptor_pb2.FileDescriptorProto(name=f"et_def_{version}.proto", package="ChakraProtoMsg")
        file.syntax = "proto3"
        for kind in SCALARS:
            _field(file.message_type.add(name=f"{kind.capitalize()}List"), "values", 1, kind, repeated=True)
        _attribute(file.message_type.add(name="AttributeProto"))
        metadata = file.message_type.add(name="GlobalMetadata")
        if version != "draft":
            _field(metadata, "version", 1, "string")
        _field(metadata, "attr", 1 if version == "draft" else 2, "AttributeProto", repeated=True)
        _enum(file, "NodeType", NODE_TYPES if version == "1.0" else NODE_TYPES[:8])
        _enum(file, "CollectiveCommType", COLLECTIVES)
        info = file.message_type.add(name="IOInfo")
        for number, name in enumerate(("values", "shapes", "types"), 1):
            _field(info, name, number, "string")
        _node(file.message_type.add(name="Node"))
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        self.messages = message_factory.GetMessageClassesForFiles([file.name], pool)

    def metadata(self, **fields: Any) -> Any:
        return self.messages["ChakraProtoMsg.GlobalMetadata"](**fields)

    def attribute(self, name: str, kind: str, value: Any) -> Any:
        """Return an attribute; a list of values is put into the message for lists of that kind."""
        if isinstance(value, list):
            listed = self.messages[f"ChakraProtoMsg.{kind.capitalize()}List"](values=value)
            return self.messages["ChakraProtoMsg.AttributeProto"](name=name, **{f"{kind}_list": listed})
        return self.messages["ChakraProtoMsg.AttributeProto"](name=name, **{f"{kind}_val": value})

    def node(self, number: int, name: str, type: str, *attributes: Any, **fields: Any) -> Any:
        return self.messages["ChakraProtoMsg.Node"](
            id=number, name=name, type=NODE_TYPES.index(type), attr=attributes, **fields
        )

    def collective(self, number: int, name: str, word: str, size: int, *attributes: Any, **fields: Any) -> Any:
        """Return a collective as the published converters write it: type and size as int64."""
        code = self.attribute("comm_type", "int64", COLLECTIVES.index(word))
        return self.node(
            number, name, "COMM_COLL_NODE", code, self.attribute("comm_size", "int64", size), *attributes, **fields
        )


def stream(*messages: Any) -> bytes:
    """Return messages one after another, each preceded by its size as a varint."""
    return b"".join(_VarintBytes(message.ByteSize()) + message.SerializeToString() for message in messages)


def _attribute(message: Any) -> None:
    _field(message, "name", 1, "string")
    _field(message, "doc_string", 2, "string")
    message.oneof_decl.add(name="value")
    for at, kind in enumerate(SCALARS):
        _field(message, f"{kind}_val", 3 + 2 * at, kind, oneof=True)
        _field(message, f"{kind}_list", 4 + 2 * at, f"{kind.capitalize()}List", oneof=True)


def _node(message: Any) -> None:
    for number, (name, kind) in enumerate((("id", "uint64"), ("name", "string"), ("type", "NodeType")), 1):
        _field(message, name, number, kind)
    _field(message, "ctrl_deps", 4, "uint64", repeated=True)
    _field(message, "data_deps", 5, "uint64", repeated=True)
    _field(message, "start_time_micros", 6, "uint64")
    _field(message, "duration_micros", 7, "uint64")
    _field(message, "inputs", 8, "IOInfo")
    _field(message, "outputs", 9, "IOInfo")
    _field(message, "attr", 10, "AttributeProto", repeated=True)


def _field(message: Any, name: str, number: int, kind: str, *, repeated: bool = False, oneof: bool = False) -> None:
    label = FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, label=label)
    if kind in SCALARS:
        field.type = getattr(FIELD, f"TYPE_{kind.upper()}")
    else:
        field.type = FIELD.TYPE_ENUM if kind == "NodeType" else FIELD.TYPE_MESSAGE
        field.type_name = f".ChakraProtoMsg.{kind}"
    if oneof:
        field.oneof_index = 0


def _enum(file: Any, name: str, words: tuple[str, ...]) -> None:
    enum = file.enum_type.add(name=name)
    for number, word in enumerate(words):
        enum.value.add(name=word, number=number)
