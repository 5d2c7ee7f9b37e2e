# attnjit_room(NAME SOURCES ... DEPS ...): one folder under src/ as a static library attnjit_NAME.
# DEPS name the rooms to its left (docs: "One direction of flow"); a room cannot include another one.
# attnjit_test(NAME SOURCES ... LIBS ... [LABELS ...] [TIMEOUT s]): one GoogleTest binary, discovered by ctest.

add_library(attnjit_options INTERFACE)
target_compile_options(attnjit_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wconversion -Wno-sign-conversion -Werror
  # GCC 12 warns falsely, at -O3, on std::string concatenation (GCC bug 105651) and on moves of a std::variant
  # (GCC bug 105562); clang and valgrind see neither.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-maybe-uninitialized>)
target_include_directories(attnjit_options INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
if(ATTNJIT_SANITIZE)
  target_compile_options(attnjit_options INTERFACE
    -fsanitize=${ATTNJIT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(attnjit_options INTERFACE -fsanitize=${ATTNJIT_SANITIZE})
endif()

# source_dir.h defines ATTNJIT_SOURCE_DIR. NOTE: a header and not an option of every test: only what reads the source
# tree is then compiled anew in another folder.
set(ATTNJIT_SOURCE_DIR_INCLUDE ${PROJECT_BINARY_DIR}/source_dir)
file(CONFIGURE OUTPUT ${ATTNJIT_SOURCE_DIR_INCLUDE}/source_dir.h
  CONTENT "// Made by cmake/AttnjitRooms.cmake.\n#pragma once\n#define ATTNJIT_SOURCE_DIR \"@PROJECT_SOURCE_DIR@\"\n" @ONLY)

function(attnjit_room NAME)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  add_library(attnjit_${NAME} STATIC ${ROOM_SOURCES})
  target_link_libraries(attnjit_${NAME} PUBLIC attnjit_options PRIVATE ${ROOM_LIBS})
  foreach(dep IN LISTS ROOM_DEPS)
    target_link_libraries(attnjit_${NAME} PUBLIC attnjit_${dep})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY ATTNJIT_ROOMS ${NAME})
endfunction()

function(attnjit_test NAME)
  cmake_parse_arguments(TEST "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  if(ATTNJIT_SANITIZE)  # several times as slow, and the compiler runs in some tests
    math(EXPR TEST_TIMEOUT "${TEST_TIMEOUT} * 5")
  endif()
  add_executable(${NAME} ${TEST_SOURCES})
  target_link_libraries(${NAME} PRIVATE attnjit_options ${TEST_LIBS} GTest::gtest_main)
  target_include_directories(${NAME} PRIVATE ${ATTNJIT_SOURCE_DIR_INCLUDE})
  # A test's own code decides no speed: what it links is optimised. This halves what the tests cost to compile.
  target_compile_options(${NAME} PRIVATE $<$<CONFIG:Release>:-O1>)
  include(GoogleTest)
  gtest_discover_tests(${NAME} TEST_PREFIX ${NAME}. DISCOVERY_MODE PRE_TEST
    # NOTE: LeakSanitizer crashes over the thread-local storage of libraries that were closed again (the fake and the
    # real driver are); this is its documented switch for that, and leaks are still looked for.
    PROPERTIES TIMEOUT ${TEST_TIMEOUT} ENVIRONMENT ASAN_OPTIONS=intercept_tls_get_addr=0
               LABELS "${TEST_LABELS}")
endfunction()

# A sample of a proof: attnjit_proof_sample(NAME COMMAND...). Exit code 77: it was skipped.
function(attnjit_proof_sample NAME)
  if(ATTNJIT_SANITIZE)  # it judges kernels, takes minutes here, and other tests run the same code of ours
    return()
  endif()
  add_test(NAME ${NAME} COMMAND ${ARGN})
  set_tests_properties(${NAME} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1200)
endfunction()
