# Writes a text as a C++ file: cmake -DINPUT=table.json -DOUTPUT=table.cpp -DHEADER=room/table.h -DNAMESPACE=attnjit
# -DFUNCTION=table -P ...  The header declares the function, which returns the text.
file(READ "${INPUT}" text)
set(body "// Made by cmake/EmbedTable.cmake.\n#include \"${HEADER}\"\n\n")
string(APPEND body "namespace ${NAMESPACE} {\n\nstd::string_view ${FUNCTION}() {\n")
string(APPEND body "  return R\"json(${text})json\";\n}\n\n}  // namespace ${NAMESPACE}\n")
file(WRITE "${OUTPUT}" "${body}")
