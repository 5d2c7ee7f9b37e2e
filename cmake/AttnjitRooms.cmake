# attnjit_room(NAME [COLD] [BY_FOLDER | APART] SOURCES ... DEPS ...): one folder under src/ as a static library
# attnjit_NAME. Every room formats text. DEPS name the rooms to its left (docs: "One direction of flow"); a room cannot
# include another one.
# COLD: no launch, no lookup of a kernel and no emulated instruction passes through the room. It is compiled at -O1,
# which takes three quarters of the time that -O3 takes.
# Where headers are precompiled, eight files of a room or of a test are compiled together: it takes half the time. Their
# unnamed namespaces are then one, so that no two of them define the same name. BY_FOLDER: the files of each folder of
# the room are compiled together, so that siblings in two folders may have the same names. APART: each file is compiled
# alone.
# attnjit_unoptimised(TARGET): the target's own code decides no speed; what it links is optimised. It compiles in half
# the time.
# attnjit_together(TARGET): eight files of the target are compiled together, as a room's.
# attnjit_test(NAME SOURCES ... LIBS ... [LABELS ...] [TIMEOUT s] [FOLDER f] [PURE]): one GoogleTest binary, discovered
# by ctest. The target tests_FOLDER builds those of a folder of tests/, and the label FOLDER chooses them; FOLDER counts
# it among another folder's. PURE: its tests leave nothing behind, and run in one process under sanitizers.

add_library(attnjit_options INTERFACE)
target_compile_options(attnjit_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wconversion -Wno-sign-conversion -Werror
  # GCC 12 warns falsely, at -O3, on std::string concatenation (GCC bug 105651) and on moves of a std::variant
  # (GCC bug 105562); clang and valgrind see neither.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-maybe-uninitialized>
  # GCC collects its garbage above 1 GB only, which none of these files needs: a tenth of the time.
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-expand=300 --param=ggc-min-heapsize=1000000>)
if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
  # As on x86-64: a char has a sign, and a product is rounded before it is added, so that both give the same bits.
  target_compile_options(attnjit_options INTERFACE -fsigned-char -ffp-contract=off)
endif()
target_include_directories(attnjit_options INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
if(ATTNJIT_SANITIZE)
  target_compile_options(attnjit_options INTERFACE
    -fsanitize=${ATTNJIT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(attnjit_options INTERFACE -fsanitize=${ATTNJIT_SANITIZE})
endif()

# source_dir.h defines ATTNJIT_SOURCE_DIR. NOTE: a header and not an option of every test: only what reads the source
# tree is then compiled again in another folder.
set(ATTNJIT_SOURCE_DIR_INCLUDE ${PROJECT_BINARY_DIR}/source_dir)
file(CONFIGURE OUTPUT ${ATTNJIT_SOURCE_DIR_INCLUDE}/source_dir.h
  CONTENT "// Made by cmake/AttnjitRooms.cmake.\n#pragma once\n#define ATTNJIT_SOURCE_DIR \"@PROJECT_SOURCE_DIR@\"\n"
  @ONLY)

# Precompiled headers: attnjit_headers for the rooms, attnjit_test_headers for the tests. A target that uses them is
# compiled with the same options and macros.
function(attnjit_headers TARGET)
  cmake_parse_arguments(HEADERS "" "" "FILES;LIBS" ${ARGN})
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${TARGET}.cpp CONTENT "// Made by cmake/AttnjitRooms.cmake.\n")
  target_sources(${TARGET} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${TARGET}.cpp)
  target_link_libraries(${TARGET} PRIVATE attnjit_options ${HEADERS_LIBS})
  target_precompile_headers(${TARGET} PRIVATE ${HEADERS_FILES})
endfunction()
if(ATTNJIT_PRECOMPILE)
  # What GCC 12 inlines from a precompiled header is no longer a system header's to it: more of bug 105651.
  target_compile_options(attnjit_options INTERFACE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds -Wno-stringop-overflow>)
  set(headers <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory> <optional> <string> <string_view>
    <unordered_map> <utility> <variant> <vector> <fmt/format.h>)
  add_library(attnjit_headers STATIC)
  attnjit_headers(attnjit_headers LIBS fmt::fmt FILES ${headers})
endif()

function(attnjit_unoptimised TARGET)
  target_compile_options(${TARGET} PRIVATE -O0)
endfunction()

function(attnjit_together TARGET)
  if(ATTNJIT_PRECOMPILE)
    set_target_properties(${TARGET} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

function(attnjit_room NAME)
  cmake_parse_arguments(ROOM "COLD;APART;BY_FOLDER" "" "SOURCES;DEPS;LIBS" ${ARGN})
  add_library(attnjit_${NAME} STATIC ${ROOM_SOURCES})
  if(ATTNJIT_PRECOMPILE)
    target_precompile_headers(attnjit_${NAME} REUSE_FROM attnjit_headers)
    if(NOT ROOM_APART)
      attnjit_together(attnjit_${NAME})
    endif()
    if(ROOM_BY_FOLDER)
      set_target_properties(attnjit_${NAME} PROPERTIES UNITY_BUILD_MODE GROUP)
      foreach(source IN LISTS ROOM_SOURCES)
        cmake_path(GET source PARENT_PATH folder)
        if(folder STREQUAL "" OR IS_ABSOLUTE "${source}")
          set(folder ${NAME})
        endif()
        set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder})
      endforeach()
    endif()
  endif()
  if(ROOM_COLD)
    target_compile_options(attnjit_${NAME} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  target_link_libraries(attnjit_${NAME} PUBLIC attnjit_options PRIVATE fmt::fmt ${ROOM_LIBS})
  foreach(dep IN LISTS ROOM_DEPS)
    target_link_libraries(attnjit_${NAME} PUBLIC attnjit_${dep})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY ATTNJIT_ROOMS ${NAME})
endfunction()

if(ATTNJIT_PRECOMPILE AND ATTNJIT_BUILD_TESTS)
  add_executable(attnjit_test_headers)
  attnjit_headers(attnjit_test_headers LIBS GTest::gtest_main fmt::fmt
    FILES ${headers} <filesystem> <fstream> <gtest/gtest.h>)
  attnjit_unoptimised(attnjit_test_headers)
endif()

# The program of attnjit_test, and the names and properties of its tests. NAMES f: the tests of the GoogleTest filter f.
function(attnjit_test_program NAME)
  cmake_parse_arguments(TEST "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${NAME} ${TEST_SOURCES})
  if(ATTNJIT_PRECOMPILE)
    target_precompile_headers(${NAME} REUSE_FROM attnjit_test_headers)
    list(LENGTH TEST_SOURCES count)
    if(count GREATER 1)
      attnjit_together(${NAME})
    endif()
  endif()
  target_link_libraries(${NAME} PRIVATE attnjit_options ${TEST_LIBS} GTest::gtest_main fmt::fmt)
  target_include_directories(${NAME} PRIVATE ${ATTNJIT_SOURCE_DIR_INCLUDE})
  attnjit_unoptimised(${NAME})
endfunction()

function(attnjit_discover NAME)
  cmake_parse_arguments(TEST "PURE" "PREFIX;FILTER;TIMEOUT;FOLDER" "LABELS" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  if(ATTNJIT_SANITIZE)  # several times as slow, and the compiler runs in some tests
    math(EXPR TEST_TIMEOUT "${TEST_TIMEOUT} * 5")
  endif()
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/tests OUTPUT_VARIABLE folder)
  string(REGEX REPLACE "/.*" "" folder "${folder}")
  if(TEST_FOLDER)
    set(folder ${TEST_FOLDER})
  endif()
  if(NOT TARGET tests_${folder})
    add_custom_target(tests_${folder})
  endif()
  add_dependencies(tests_${folder} ${NAME})
  if(ATTNJIT_SANITIZE AND TEST_PURE)  # a process takes a tenth of a second to start
    add_test(NAME ${TEST_PREFIX} COMMAND ${NAME} "--gtest_filter=${TEST_FILTER}")
    set_tests_properties(${TEST_PREFIX} PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS "${folder};${TEST_LABELS}")
    return()
  endif()
  include(GoogleTest)
  gtest_discover_tests(${NAME} TEST_PREFIX ${TEST_PREFIX}. TEST_FILTER "${TEST_FILTER}" DISCOVERY_MODE PRE_TEST
    # NOTE: LeakSanitizer crashes over the thread-local storage of libraries that were closed again (the fake and the
    # real driver are); this is its documented switch for that, and leaks are still looked for.
    PROPERTIES TIMEOUT ${TEST_TIMEOUT} ENVIRONMENT ASAN_OPTIONS=intercept_tls_get_addr=0
               LABELS "${folder};${TEST_LABELS}")
endfunction()

function(attnjit_test NAME)
  cmake_parse_arguments(TEST "PURE" "TIMEOUT;FOLDER" "SOURCES;LIBS;LABELS" ${ARGN})
  attnjit_test_program(${NAME} SOURCES ${TEST_SOURCES} LIBS ${TEST_LIBS})
  set(pure)
  if(TEST_PURE)
    set(pure PURE)
  endif()
  attnjit_discover(${NAME} PREFIX ${NAME} FILTER "*" TIMEOUT "${TEST_TIMEOUT}" FOLDER "${TEST_FOLDER}" ${pure}
    LABELS ${TEST_LABELS})
endfunction()

# attnjit_tests(ROOM TEST... LIBS ... [TIMEOUT s]): one program test_ROOM of all TEST_test.cpp, which compiles in half
# the time of one for each; the tests of each file are named test_ROOM_TEST. Sets ROOM_TEST_filter to their GoogleTest
# filter.
function(attnjit_tests ROOM)
  cmake_parse_arguments(FILES "" "TIMEOUT" "LIBS" ${ARGN})
  set(tests ${FILES_UNPARSED_ARGUMENTS})
  list(TRANSFORM tests APPEND _test.cpp OUTPUT_VARIABLE sources)
  attnjit_test_program(test_${ROOM} SOURCES ${sources} LIBS ${FILES_LIBS})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})  # whose suites are read here
  set(all)
  foreach(test IN LISTS tests)
    file(READ ${test}_test.cpp text)
    string(REGEX MATCHALL "\nTEST(_[FP])?\\([A-Za-z0-9_]+" suites "${text}")
    list(TRANSFORM suites REPLACE "\nTEST_P\\((.+)" "*/\\1.*")  # and the names of its sets of parameters
    list(TRANSFORM suites REPLACE "\nTEST(_F)?\\((.+)" "\\2.*")
    list(REMOVE_DUPLICATES suites)
    list(APPEND all ${suites})
    list(JOIN suites ":" filter)
    attnjit_discover(test_${ROOM} PREFIX test_${ROOM}_${test} FILTER "${filter}" TIMEOUT "${FILES_TIMEOUT}")
    set(${ROOM}_${test}_filter "${filter}" PARENT_SCOPE)
  endforeach()
  # Each test is run under the name of one file: suites of two files have two names, and none is left out.
  set(distinct ${all})
  list(REMOVE_DUPLICATES distinct)
  if(NOT all STREQUAL distinct)
    message(FATAL_ERROR "two files of test_${ROOM} have a suite of the same name: ${all}")
  endif()
  list(JOIN all ":" filter)
  add_test(NAME ${ROOM}.none_left_out COMMAND test_${ROOM} --gtest_filter=-${filter})
  set_tests_properties(${ROOM}.none_left_out PROPERTIES PASS_REGULAR_EXPRESSION "0 tests from 0 test suites ran"
    LABELS ${ROOM})
endfunction()

# attnjit_kernel_tests(ROOM TEST... LIBS ...): attnjit_tests, which run each launch in one order of execution, and for
# each file the proof ROOM.TEST_orders, which runs it in ten.
function(attnjit_kernel_tests ROOM)
  attnjit_tests(${ROOM} ${ARGN} TIMEOUT 600)
  cmake_parse_arguments(KERNEL "" "" "LIBS" ${ARGN})
  foreach(test IN LISTS KERNEL_UNPARSED_ARGUMENTS)
    add_test(NAME ${ROOM}.${test}_orders COMMAND test_${ROOM} --gtest_filter=${${ROOM}_${test}_filter})
    set_tests_properties(${ROOM}.${test}_orders PROPERTIES
      ENVIRONMENT ATTNJIT_TEST_SEEDS=10 TIMEOUT 7200 LABELS proof)
  endforeach()
endfunction()

# A sample of a proof: attnjit_proof_sample(NAME COMMAND...). Exit code 77: it was skipped.
function(attnjit_proof_sample NAME)
  if(ATTNJIT_SANITIZE)  # it judges kernels, takes minutes here, and other tests run the same code of ours
    return()
  endif()
  add_test(NAME ${NAME} COMMAND ${ARGN})
  set_tests_properties(${NAME} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1200)
endfunction()
