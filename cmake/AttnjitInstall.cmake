# Install rules, the package files that find_package(attnjit) and pkg-config read, and Debian's packages (cpack -G DEB):
# attnjit has the command, its man page and completions, and the shared library; attnjit-dev what a build needs.
include(CMakePackageConfigHelpers)

# The command, its man page and completions install themselves (src/cli).
install(TARGETS attnjit_shared EXPORT attnjitTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
install(TARGETS attnjit_static attnjit_emulator_static EXPORT attnjitStaticTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(DIRECTORY include/attnjit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/attnjit)
foreach(targets IN ITEMS attnjitTargets attnjitStaticTargets)
  install(EXPORT ${targets} NAMESPACE attnjit:: DESTINATION ${package} COMPONENT dev)
endforeach()
configure_package_config_file(cmake/attnjitConfig.cmake.in attnjitConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(attnjitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attnjitConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/attnjitConfigVersion.cmake
  DESTINATION ${package} COMPONENT dev)

# For builds that ask pkg-config. The prefix is the file's own place, so that the tree may be moved.
file(RELATIVE_PATH ATTNJIT_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" ATTNJIT_PC_PREFIX "${ATTNJIT_PC_PREFIX}")
configure_file(cmake/attnjit.pc.in attnjit.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attnjit.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/attnjit RENAME copyright COMPONENT runtime)

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
# What is installed, built without the tests; packages and installs ask for no more.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
add_custom_target(attnjit_installed DEPENDS attnjit_command attnjit_shared attnjit_static attnjit_emulator_static)
if(TARGET attnjit_help)
  add_dependencies(attnjit_installed attnjit_help)
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_CONTACT "attnjit maintainers <maintainers@attnjit.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Attention kernels on demand for NVIDIA Hopper and Blackwell GPUs")
set(CPACK_PACKAGE_DESCRIPTION "Plans an attention kernel for a model's needs, compiles it with NVRTC, keeps it in a cache
on disk and launches it. NVRTC comes from CUDA's toolkit or from its wheel, the driver from NVIDIA.")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_COMPONENTS_ALL runtime dev)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME attnjit)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "ca-certificates, libcurl4, libhiredis0.14")  # opened at run time
set(CPACK_DEBIAN_DEV_PACKAGE_NAME attnjit-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "attnjit (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "libfmt-dev, libspdlog-dev, libssl-dev")  # of the static libraries
include(CPack)
