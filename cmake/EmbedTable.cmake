# Writes a tuning table as a C++ file: cmake -DINPUT=modelled.json -DOUTPUT=modelled.cpp -P ...
file(READ "${INPUT}" text)
set(body "// Made from src/plan/tables by cmake/EmbedTable.cmake.\n#include \"plan/tables.h\"\n\n")
string(APPEND body "namespace attnjit {\n\nstd::string_view modelled_table() {\n")
string(APPEND body "  return R\"json(${text})json\";\n}\n\n}  // namespace attnjit\n")
file(WRITE "${OUTPUT}" "${body}")
