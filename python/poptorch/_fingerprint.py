"""A digest of everything that decides what a model compiles to: its modules' attributes, the code of its methods and
of what they call, and the values that this code refers to. Elements of parameters and buffers do not count.

Libraries (PyTorch, installed packages) count by name and version, their code is not read. What cannot be digested
raises `Unknown`. Not seen: files, the environment and random numbers that the model's Python reads while it is compiled.
"""

import dis
import enum
import functools
import hashlib
import sys
import types

import numpy as np
import torch

from pando.torch._location import is_library

from ._executable import VERSION

# Attributes that wrapping adds to a module.
_SKIPPED = {"destroy"}


class Unknown(Exception):
    """Something of the model has no digest."""


def fingerprint(model, *others):
    """The digest, as text, of a model and of other things that decide."""
    digest = _Digest()
    try:
        for one in (VERSION, sys.version, torch.__version__, torch.get_default_dtype(), model, *others):
            digest.add(one)
    except RecursionError:
        raise Unknown("a structure that is nested too deeply") from None
    return digest.text()


class _Digest:
    def __init__(self):
        self._hash = hashlib.sha256()
        self._seen = {}
        self._alive = []  # ids stay theirs

    def text(self):
        return self._hash.hexdigest()

    def _put(self, *words):
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode()
            self._hash.update(len(data).to_bytes(8, "little") + data)

    def add(self, value):
        """Anything."""
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            self._put(type(value).__name__, value if isinstance(value, bytes) else repr(value))
        elif isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, enum.Enum, range, slice)):
            self._put(repr(value))
        elif id(value) in self._seen:
            self._put("again", self._seen[id(value)])
        else:
            self._seen[id(value)] = len(self._seen)
            self._alive.append(value)
            self._add_object(value)

    def _add_object(self, value):
        for kinds, method in _METHODS:
            if isinstance(value, kinds):
                method(self, value)
                return
        self._plain_object(value)

    def _sequence(self, value):
        self._put(type(value).__name__, len(value))
        for part in value:
            self.add(part)

    def _set(self, value):
        self._put("set")
        self._sequence(sorted(map(repr, value)))

    def _mapping(self, value):
        self._put("dict", len(value))
        for key, part in value.items():
            self.add(key)
            self.add(part)

    def _tensor(self, value):
        """Parameters and buffers by their types alone; `_module` takes them out, so that this one is a constant."""
        plain = value.detach()
        plain = plain.view(torch.int16) if plain.dtype is torch.bfloat16 else plain
        self._put("tensor", value.dtype, tuple(value.shape), np.ascontiguousarray(plain.numpy()).tobytes())

    def _array(self, value):
        if value.dtype.hasobject:
            raise Unknown(f"an array of {value.dtype}")
        self._put("array", value.dtype, value.shape, np.ascontiguousarray(value).tobytes())

    def _module(self, value):
        """A torch module: its class and attributes; of registered tensors only what kind they are."""
        self.add(type(value))
        for name, part in vars(value).items():
            if name in ("_parameters", "_buffers"):
                self._put(name)
                for key, tensor in part.items():
                    kind = None if tensor is None else (tensor.dtype, tuple(tensor.shape), tensor.requires_grad)
                    self._put(key, kind)
            elif name.startswith("_") and isinstance(part, dict) and "hook" in name:
                self._sequence(list(part.values()))  # their keys count all hooks of the process
            elif name not in _SKIPPED:
                self._put(name)
                self.add(part)

    def _function(self, value):
        self._put("function", value.__module__, value.__qualname__)
        if is_library(value.__code__.co_filename):
            self._library(value.__module__)
            return
        self._code(value.__code__, value.__globals__)
        self.add(value.__defaults__)
        self.add(value.__kwdefaults__)
        for cell in value.__closure__ or ():
            try:
                self.add(cell.cell_contents)
            except ValueError:
                self._put("empty")

    def _code(self, code, names):
        """Instructions, constants, and the globals that they name."""
        self._put(code.co_code, code.co_names, code.co_varnames)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._code(constant, names)
            else:
                self.add(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)
        # Attributes are among `co_names`, too.
        loaded = {one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        for name in sorted(loaded & names.keys()):
            self._put(name)
            self.add(names[name])

    def _class(self, value):
        self._put("class", value.__module__, value.__qualname__)
        source = sys.modules.get(value.__module__)
        path = getattr(source, "__file__", None)
        if value.__module__ in sys.builtin_module_names or (path is not None and is_library(path)):
            self._library(value.__module__)
            return
        self.add(value.__bases__)
        for name, part in vars(value).items():
            if name not in ("__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__"):
                self._put(name)
                self.add(part)

    def _library(self, name):
        top = (name or "").partition(".")[0]
        self._put("library", top, getattr(sys.modules.get(top), "__version__", ""))

    def _python_module(self, value):
        self._put("module", value.__name__)
        path = getattr(value, "__file__", None)
        if path is None or is_library(path):
            self._library(value.__name__)
            return
        with open(path, "rb") as file:  # a module of the user's: all of it
            self._put(file.read())

    def _method(self, value):
        self.add(value.__func__)
        self.add(value.__self__)

    def _wrapped(self, value):
        self.add(value.__func__)

    def _property(self, value):
        for part in (value.fget, value.fset, value.fdel):
            self.add(part)

    def _partial(self, value):
        self.add(value.func)
        self.add(value.args)
        self.add(value.keywords)

    def _builtin(self, value):
        self._put("builtin", getattr(value, "__module__", ""), getattr(value, "__qualname__", repr(type(value))))

    def _plain_object(self, value):
        """An object of a class: the class and the attributes."""
        if type(value).__module__ == "torch._ops" or not hasattr(value, "__dict__") and not hasattr(value, "__slots__"):
            if type(value).__module__.partition(".")[0] in ("torch", "builtins"):
                self._put(type(value).__qualname__, str(value) if type(value).__module__ == "torch._ops" else "")
                return
            raise Unknown(f"an object of {type(value).__qualname__}")
        self.add(type(value))
        if hasattr(value, "__dict__"):
            self._mapping(vars(value))
        for name in getattr(type(value), "__slots__", ()):
            if isinstance(name, str) and hasattr(value, name) and name not in ("__weakref__", "__dict__"):
                self._put(name)
                self.add(getattr(value, name))


_METHODS = [
    (torch.nn.Module, _Digest._module),
    (torch.Tensor, _Digest._tensor),
    (np.ndarray, _Digest._array),
    (np.generic, lambda self, value: self._put(value.dtype, repr(value))),
    ((tuple, list), _Digest._sequence),
    ((set, frozenset), _Digest._set),
    (dict, _Digest._mapping),
    (types.MappingProxyType, _Digest._mapping),
    (types.FunctionType, _Digest._function),
    (types.MethodType, _Digest._method),
    ((staticmethod, classmethod), _Digest._wrapped),
    (property, _Digest._property),
    (functools.partial, _Digest._partial),
    (types.ModuleType, _Digest._python_module),
    (type, _Digest._class),
    ((types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType, types.GetSetDescriptorType,
      types.MemberDescriptorType, types.MethodWrapperType, types.ClassMethodDescriptorType), _Digest._builtin),
]
